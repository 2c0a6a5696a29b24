"""The torch models that plans train: shapes, packed batches, exchanges between ranks; no processes."""

from planner.models.batch import IGNORED, Batch, CrossAttentionMemory, EncoderFeatures
from planner.models.build import build, init_weights, unsupported
from planner.models.contrastive_loss import contrastive_loss
from planner.models.described_models import describe
from planner.models.embedding_shard import EmbeddingShard
from planner.models.sequence_parallel import NO_SEQUENCE_PARALLEL, SequenceParallel
from planner.models.sharded_adamw import ShardedAdamW
from planner.models.sharding import (
    EqualShard,
    ExpertShard,
    ModuleShard,
    ParameterSplit,
    expert_parameters,
    parameter_splits,
)
from planner.models.tensor_parallel import NO_TENSOR_PARALLEL, TensorParallel
from planner.models.tensor_region import TensorRegion, copy_shared, held_region, held_values, whole_region
from planner.models.token_dispatch import (
    LOCAL_DISPATCHER,
    ExpertChoice,
    ExpertFunction,
    TokenDispatcher,
    combine_outputs,
)
