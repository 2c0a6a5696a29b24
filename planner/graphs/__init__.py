"""Graphs whose nodes are trained on: partitions, orders of training nodes, caches of rows, which pair moves least."""

from planner.graphs.choose_order import OrderAnswer, OrderQuestion, choose_order
from planner.graphs.read_graph import Graph, graph_of, read_graph, read_labels, read_nodes
