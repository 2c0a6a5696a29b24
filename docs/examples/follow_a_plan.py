"""A training loop in plain PyTorch that follows a plan: its own model, its own process groups, and the plan's tasks.

    torchrun --nproc-per-node 4 docs/examples/follow_a_plan.py plan.yaml --steps 3

Sequences are split over groups that differ from micro-batch to micro-batch (DeepSpeed-Ulysses, arXiv 2309.14509),
layers over a pipeline. Weights are unsharded on every rank of a stage, whatever ZeRO stage the plan states. What it
does not do is refused before it starts: backward in two, tensor parallelism, rings, experts, several modules. From
`planner` comes what the plan says; replace the model, the data and the optimizer by yours.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.nn.functional import all_to_all_single

from planner.follow import FollowedPlan, RankShare, follow
from planner.plan.plan_file import Plan
from planner.plan.task import Task
from planner.plan.tasks.expand import expand

DONE = {"F", "B", "send", "recv", "gather", "sync", "update"}  # phases
VOCAB, HIDDEN, HEADS, RATE = 64, 32, 8, 0.01


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.mlp = nn.Sequential(nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 64), nn.GELU(), nn.Linear(64, HIDDEN))

    def forward(self, x: Tensor, group: "Sequences") -> Tensor:
        """x [t, HIDDEN]: this rank's tokens; between the two exchanges a rank has all tokens, and some heads."""
        q, k, v = group.to_heads(self.qkv(x).unflatten(1, (HEADS, -1))).chunk(3, -1)  # [T, heads, HIDDEN / HEADS]
        documents = [x.split(group.share.lengths) for x in (q, k, v)]
        attended = [
            F.scaled_dot_product_attention(*(y.transpose(0, 1) for y in qkv), is_causal=True).transpose(0, 1)
            for qkv in zip(*documents, strict=True)
        ]
        x = x + self.out(group.to_tokens(torch.cat(attended)).flatten(1))
        return x + self.mlp(x)  # type: ignore[no-any-return]


class Sequences:
    """The group of ranks that work together on the items of one task."""

    def __init__(self, share: RankShare, sizes: list[int], group: dist.ProcessGroup | None) -> None:
        self.share, self.sizes, self.group = share, sizes, group
        self.ranks, self.mine = len(sizes), sum(span.last - span.first for span in share.tokens)

    def to_heads(self, x: Tensor) -> Tensor:
        """[t, HEADS, d] to [T, HEADS / ranks, d]."""
        sent = torch.cat(x.chunk(self.ranks, 1))
        return self.exchange(sent, [self.mine] * self.ranks, self.sizes)

    def to_tokens(self, x: Tensor) -> Tensor:
        received = self.exchange(x.contiguous(), self.sizes, [self.mine] * self.ranks)
        return torch.cat(received.chunk(self.ranks), 1)

    def exchange(self, x: Tensor, sent: list[int], received: list[int]) -> Tensor:
        if self.group is None:
            return x
        out: Tensor = all_to_all_single(x.new_empty(sum(received), *x.shape[1:]), x, received, sent, self.group)
        return out


class Trainer:
    """One rank: the layers that the plan gives it, and what to do for each task."""

    def __init__(self, followed: FollowedPlan, module: str) -> None:
        self.followed, self.module, self.rank = followed, module, dist.get_rank()
        self.groups = {ranks: dist.new_group(list(ranks)) for ranks in followed.groups()}
        self.last = followed.plan.uses.models[module].layers - 1
        self.layers = nn.ModuleDict()
        for number in (number for chunk in followed.layers(module, self.rank) for number in chunk):
            torch.manual_seed(number)  # the same first weights wherever a layer is
            self.layers[str(number)] = Layer()
            if number == 0:
                self.layers["embedding"] = nn.Embedding(VOCAB, HIDDEN)
            if number == self.last:
                self.layers["head"] = nn.Linear(HIDDEN, VOCAB)
        self.layers.double()
        self.optimizer = torch.optim.AdamW(self.layers.parameters(), RATE)

    def step(self, number: int) -> float:
        """The loss per token, over all ranks."""
        number %= len(self.followed.plan.steps)
        self.targets, self.loss = self.followed.targets(self.module, number), torch.zeros((), dtype=torch.float64)
        self.inputs: dict[tuple[object, ...], Tensor] = {}  # of passes in flight, by key
        self.outputs: dict[tuple[object, ...], Tensor] = {}
        self.gradients: dict[tuple[object, ...], Tensor] = {}
        self.sent: list[tuple[dist.Work | None, Tensor]] = []
        for task in self.followed.tasks(self.rank, number):
            self.execute(task, (task.layers, task.micro_batch, task.group))
        for work, _ in self.sent:
            assert work is not None
            work.wait()
        dist.all_reduce(self.loss)
        return self.loss.item()

    def execute(self, task: Task, key: tuple[object, ...]) -> None:
        if task.phase == "F":
            self.forward(task, key)
        elif task.phase == "B":
            self.outputs.pop(key).backward(self.gradients.pop(key, None))
        elif task.phase == "send":  # to the rank of the same index on the next stage, or the one before
            x = self.outputs[key].detach() if task.of == "F" else self.inputs.pop(key).grad
            assert x is not None
            self.sent.append((dist.isend(x, task.peers[task.ranks.index(self.rank)]), x))
        elif task.phase == "recv":
            rows = sum(span.last - span.first for span in self.followed.batch(self.rank, task).rows)
            x = torch.empty(rows, HIDDEN, dtype=torch.float64)
            dist.recv(x, task.peers[task.ranks.index(self.rank)])
            (self.inputs if task.of == "F" else self.gradients)[key] = x.requires_grad_(task.of == "F")
        elif task.phase == "update":  # `task.ranks`: all ranks of a stage
            for weight in self.layers.parameters():
                weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
                if len(task.ranks) > 1:
                    dist.all_reduce(weight.grad, group=self.groups[task.ranks])
            self.optimizer.step()
            self.optimizer.zero_grad()
        elif task.phase not in ("gather", "sync"):  # these two are for sharded weights; here they are whole
            raise NotImplementedError(f"this loop does nothing for {task.id}")

    def forward(self, task: Task, key: tuple[object, ...]) -> None:
        share = self.followed.batch(self.rank, task)
        if share.split.ring > 1 or share.tokens != share.rows:
            raise NotImplementedError("this loop has no ring attention, and no tensor parallelism")
        others = [self.followed.batch(rank, task).tokens for rank in share.ranks]
        sizes = [sum(span.last - span.first for span in tokens) for tokens in others]
        group = Sequences(share, sizes, self.groups[share.ranks] if len(share.ranks) > 1 else None)
        tokens = torch.cat([item_tokens(share, span.item)[span.first : span.last] for span in share.tokens] or [EMPTY])
        x = self.inputs[key] if task.layers[0] else self.layers["embedding"](tokens)
        for layer in task.layers if share.items else ():  # an idle rank has nothing to compute
            x = self.layers[str(layer)](x, group)
        if task.layers[-1] == self.last:
            targets = (item_tokens(share, span.item)[span.first + 1 : span.last + 1] for span in share.tokens)
            following = torch.cat([*targets] or [EMPTY])
            x = F.cross_entropy(self.layers["head"](x), following, reduction="sum") / self.targets
            self.loss += x.detach()
        self.outputs[key] = x


EMPTY = torch.empty(0, dtype=torch.long)


def item_tokens(share: RankShare, item: int) -> Tensor:
    """Any data: sample `item` of yours. Here drawn, one token more than the item has, as each predicts the next one."""
    size = share.sizes[share.items.index(item)]
    return torch.randint(VOCAB, (size + 1,), generator=torch.Generator().manual_seed(item))


def unfit(plan: Plan) -> str:
    """Why this loop cannot follow a plan; empty: it can."""
    if len(plan.layouts) > 1:
        return f"it trains one module, the plan has {len(plan.layouts)}"
    (layout,) = plan.layouts.values()
    if layout.tp > 1:
        return "it has no tensor parallelism"
    if layout.ep * layout.etp > 1 or plan.uses.models[next(iter(plan.layouts))].routed_experts:
        return "its layers have no experts"
    ring = [name for name, group in plan.groups.items() if group.resolved_split(layout).ring > 1]
    if ring:
        return f"it has no ring attention, which group {ring[0]} asks for"
    phases = {task.phase for number in range(len(plan.steps)) for task in expand(plan, number)}
    return f"it does nothing for {', '.join(sorted(phases - DONE))}" if phases - DONE else ""


def unlike_world(plan: Plan) -> str:
    """What is wrong if torchrun started more or fewer processes than the plan has ranks; empty: nothing."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    fix = f"torchrun --nproc-per-node {plan.size}, or a plan for {processes}"
    return "" if processes == plan.size else f"the plan has {plan.size} ranks, there are {processes} processes: {fix}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan")
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    followed = follow(arguments.plan)
    reason = unfit(followed.plan) or unlike_world(followed.plan)
    if reason:
        message = f"{arguments.plan}: this loop cannot follow the plan: {reason}"
        sys.exit(message if os.environ.get("RANK", "0") == "0" else 0)  # one that fails ends all: rank 0 has to report
    dist.init_process_group("gloo")
    trainer = Trainer(followed, next(iter(followed.plan.layouts)))
    for number in range(arguments.steps):
        loss = trainer.step(number)
        if trainer.rank == 0:
            print(f"step {number + 1}  loss {loss!r}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # several processes of one machine
    main()
