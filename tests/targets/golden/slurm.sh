#!/bin/bash
# accelerate 1.15, settings checked by its own parser
#SBATCH --job-name=llama-70b
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
set -euo pipefail

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
srun --kill-on-bad-exit=1 bash -s <<'ON_EACH_NODE'
export NODE_RANK=$SLURM_NODEID
# accelerate 1.15, settings checked by its own parser
# Run it on each node.
# shellcheck shell=bash
set -euo pipefail

TRAIN=${TRAIN:?the training script}
NODE_RANK=${NODE_RANK:?of this node, from 0}
MASTER_ADDR=${MASTER_ADDR:?of the first node}

CONFIG=$(mktemp --suffix=.yaml)
cat > "$CONFIG" <<CONFIG_FILE
# accelerate 1.15, settings checked by its own parser
# hsdp-tp
# Left to the training script: a decoder of 32 layers, hidden 4096, sequences of 4096 tokens, 256 of them a step and 1 a micro-batch.
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: false
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_reshard_after_forward: true
  fsdp_activation_checkpointing: false
num_machines: 8
num_processes: 64
parallelism_config: {parallelism_config_dp_replicate_size: 4, parallelism_config_dp_shard_size: 8, parallelism_config_tp_size: 2,
  parallelism_config_cp_size: 1}
mixed_precision: bf16
CONFIG_FILE
accelerate launch --config_file "$CONFIG" --machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR" --main_process_port "${MASTER_PORT:-29500}" \
  "$TRAIN"
ON_EACH_NODE
