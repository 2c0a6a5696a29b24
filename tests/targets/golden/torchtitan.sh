# torchtitan 0.3.0, settings checked by its own parser
# vpp
# Run it on each node.
# shellcheck shell=bash
set -euo pipefail

HF_ASSETS_PATH=${HF_ASSETS_PATH:?folder with tokenizer and config of the model, as Hugging Face has them}
DATASET_PATH=${DATASET_PATH:?folder or name of the dataset}
NODE_RANK=${NODE_RANK:?of this node, from 0}
MASTER_ADDR=${MASTER_ADDR:?of the first node}

MODEL=(
  --module llama3
  --config llama3_70b
)

SETTINGS=(
  --training.seq_len 8192
  --parallelism.tensor_parallel_degree 4
  --parallelism.enable_sequence_parallel
  --parallelism.context_parallel_degree 2
  --parallelism.pipeline_parallel_degree 4
  --parallelism.pipeline_parallel_schedule Interleaved1F1B
  --parallelism.pipeline_parallel_layers_per_stage 4
  --parallelism.pipeline_parallel_first_stage_less_layers 0
  --parallelism.pipeline_parallel_last_stage_less_layers 0
  --parallelism.data_parallel_replicate_degree 1
  --parallelism.data_parallel_shard_degree 2
  --parallelism.fsdp_reshard_after_forward always
  --training.mixed_precision_param bfloat16
  --compile.enable
  --compile.no-enable_async_tensor_parallel
  --training.disable_cuda_graphs
  --training.local_batch_size 64
  --training.global_batch_size 128
  --parallelism.pipeline_parallel_microbatch_size 1
)

DATA=(
  --hf_assets_path "$HF_ASSETS_PATH"
  --dataloader.dataset_path "$DATASET_PATH"
)

RECOMPUTE=(
  activation_checkpoint:full
)

torchrun --nproc-per-node 8 --nnodes 8 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}" \
  -m torchtitan.train "${MODEL[@]}" "${SETTINGS[@]}" "${DATA[@]}" "${RECOMPUTE[@]}"
