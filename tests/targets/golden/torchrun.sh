# Run it on each node.
# shellcheck shell=bash
set -euo pipefail

TRAIN=${TRAIN:?the training script}
NODE_RANK=${NODE_RANK:?of this node, from 0}
MASTER_ADDR=${MASTER_ADDR:?of the first node}

CONFIG=$(mktemp --suffix=.json)
cat > "$CONFIG" <<CONFIG_FILE
{
  "comment": "DeepSpeed 0.19.8, settings checked by its own parser | autotp | Left to the training script: a decoder of 32 layers, hidden 4096, sequences of 4096 tokens.",
  "tensor_parallel": {
    "autotp_size": 4
  },
  "sequence_parallel_size": 1,
  "zero_optimization": {
    "stage": 2
  },
  "bf16": {
    "enabled": true
  },
  "communication_data_type": "fp32",
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 16
}
CONFIG_FILE
torchrun --nproc-per-node 8 --nnodes 8 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}" \
  "$TRAIN" --deepspeed --deepspeed_config "$CONFIG"
