"""Groups of processes, and what is exchanged in them: collectives, ring and Ulysses attention, dispatch to experts."""

from planner.launch.communication.channels import Channel, Channels, ExpectedMessage, RankPair
from planner.launch.communication.collectives import ALL_GATHER, REDUCE_SCATTER, barrier, prepare, time_collective
from planner.launch.communication.communication_meter import CommunicationMeter
from planner.launch.communication.expert_dispatch import dispatchers_by_layer
from planner.launch.communication.messages import all_gather_messages, broadcast_message, gather_messages
from planner.launch.communication.process_groups import ProcessGroups
from planner.launch.communication.ragged_collectives import RaggedGroup
from planner.launch.communication.tensor_collectives import tensor_parallel_over
from planner.launch.communication.unified_sequence_parallel import SharedMicroBatch, sequence_parallel_over
