"""Which replica works on which samples and items in which micro-batch, of one module and of several together."""

from planner.strategies.assignment.encoder_orders import few_orders, orders_of
from planner.strategies.assignment.joint_assignment import JointItems
from planner.strategies.assignment.joint_streams import AssignmentRule
from planner.strategies.assignment.module_items import item_line, micro_batch_count
from planner.strategies.assignment.packed_modules import packs_samples
