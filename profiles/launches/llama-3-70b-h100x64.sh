# Megatron-LM, arguments checked by megatron-core 0.19.2
# dense-vpp
# Run it on each node, in a checkout of Megatron-LM.
# shellcheck shell=bash
set -euo pipefail

DATA_PATH=${DATA_PATH:?prefix of the tokens that tools/preprocess_data.py wrote}
TOKENIZER_MODEL=${TOKENIZER_MODEL:?name or folder of a Hugging Face tokenizer}
NODE_RANK=${NODE_RANK:?of this node, from 0}
MASTER_ADDR=${MASTER_ADDR:?of the first node}
export CUDA_DEVICE_MAX_CONNECTIONS=1

MODEL=(
  --num-layers 80
  --hidden-size 8192
  --num-attention-heads 64
  --group-query-attention
  --num-query-groups 8
  --swiglu
  --ffn-hidden-size 28672
  --normalization RMSNorm
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --position-embedding-type rope
  --max-position-embeddings 8192
  --rotary-base 500000
  --vocab-size 128256
  --make-vocab-size-divisible-by 64
)

LAYOUT=(
  --tensor-model-parallel-size 4
  --sequence-parallel
  --context-parallel-size 2
  --pipeline-model-parallel-size 4
  --num-layers-per-virtual-pipeline-stage 4
  --use-distributed-optimizer
  --optimizer adam
  --bf16
  --overlap-grad-reduce
  --overlap-param-gather
)

STEP=(
  --seq-length 8192
  --micro-batch-size 1
  --global-batch-size 128
)

TRAINING=(
  --train-iters "${TRAIN_ITERS:-100}"
  --lr "${LR:-1.5e-4}"
  --attention-dropout 0
  --hidden-dropout 0
)

DATA=(
  --data-path "$DATA_PATH"
  --split 99,1,0
  --tokenizer-type HuggingFaceTokenizer
  --tokenizer-model "$TOKENIZER_MODEL"
)

torchrun --nproc-per-node 8 --nnodes 8 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}" \
  pretrain_gpt.py "${MODEL[@]}" "${LAYOUT[@]}" "${STEP[@]}" "${TRAINING[@]}" "${DATA[@]}"
