"""A clock of servers: requests come, instances batch them continuously, and a policy may give instances other stages.

Each stage has one queue for all instances that have it: an instance that comes to the end of an iteration takes what
fits, and whoever finds nothing to do waits for the next arrival. Room for a
request's keys and values, in whole pages up to its last token, is kept before its prompt enters an iteration: a
server that does not know how long answers become would have to evict some. An answer that continues on another
instance waits for room there, and then for its keys and values to move.

What runs for fixed times stands in simulate/clock.py, and jobs on GPUs in simulate/decision_clock.py: the same heap of
events and the same frozen state, of other nouns.
"""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from math import inf

from planner.costs.serving import StagePrices, tabled
from planner.errors import InputError
from planner.simulate.serving.caches import FeatureCache, PrefixCache
from planner.simulate.serving.history import NEVER, ServingHistory, empty_history
from planner.simulate.serving.instance import ANSWERS, IDLE, IMAGES, PROMPTS, SWITCH, Instance, Turning
from planner.simulate.serving.serving_state import ServingDecide, ServingState, require_possible_turns, view_of
from planner.simulate.serving.setup import GONE, InstanceSpec, ServingSetup, pages, pages_of
from planner.specs.service import Service
from planner.specs.workload.requests.request import Request

PASS, MOVED, WAKE = range(3)  # events: of an instance, of a request, of the policy


class ServingClock:
    """The heap of what is to come, the queues, and the instances as they are; `prices`: of the tensor-parallel degrees
    that instances may take on.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        fleet: Sequence[InstanceSpec],
        setup: ServingSetup,
        prices: Mapping[int, StagePrices] | None = None,
    ) -> None:
        self.requests, self.setup = requests, setup
        self.degrees = {each.prices.tp: each.prices for each in fleet} | dict(prices or {})
        self.instances = [Instance(number, spec.prices) for number, spec in enumerate(fleet)]
        for instance, spec in zip(self.instances, fleet, strict=True):
            instance.become(spec)
        self.heap: list[tuple[float, int, int, int, int]] = []  # at, pushed, event, whom, version
        self.pushed = 0
        # By stage that is waited for: heaps of key and request
        self.waiting: dict[str, list[tuple[float, int]]] = {stage: [] for stage in "epd"}
        self.features, self.prefixes = FeatureCache(setup.encoder_cache), PrefixCache(setup.prefix_cache)
        self.history = empty_history(requests)
        self.missing: list[tuple[int, ...]] = [each.images for each in requests]  # images that have no features yet
        self.to_go = [each.output_tokens - 1 for each in requests]  # tokens of an answer when it goes on
        self.holder = [-1] * len(requests)  # the instance that has a request's keys and values
        self.target = [-1] * len(requests)  # the instance that they move to
        self.left, self.asked, self.prices = len(requests), 0, fleet[0].prices
        self.late, self.most_late = 0, inf
        self.answered = (0, 0)  # requests that have ended, and tokens of their answers
        self.service: Service | None = None
        self.keys = [each.arrival_s for each in requests]
        if setup.order == "shortest":
            self.keys = [work_seconds(each, self.prices) + setup.ageing * each.arrival_s for each in requests]
        self.recording = False

    # ------------------------------------------------------------------------------------------------------ the loop

    def measure(self, service: Service) -> None:
        """Stop as soon as too many requests are late for a service level."""
        self.service, self.most_late = service, len(self.requests) * (1.0 - service.share) + 1e-9

    def run(self, decide: ServingDecide | None = None, every_s: float = 1.0) -> ServingHistory:
        """All requests, to their ends; or until too many were late."""
        heap, requests, arrived, count = self.heap, self.requests, 0, len(self.requests)
        if decide:
            self.push(0.0, WAKE, 0, 0)
        while self.left:
            at = requests[arrived].arrival_s if arrived < count else inf
            if heap and heap[0][0] < at:
                now, _, event, whom, version = heappop(heap)
                if event == PASS:
                    instance = self.instances[whom]
                    if instance.version == version:
                        self.ended(instance, now)
                elif event == MOVED:
                    self.moved(whom, now)
                elif decide:
                    self.ask(decide, now, arrived)
                    self.push(now + every_s, WAKE, 0, 0)
            elif arrived < count:
                self.arrive(arrived, at)
                arrived += 1
            else:
                self.require_progress()
            if self.late > self.most_late:
                self.history.stopped = True
                break
        self.history.hits = self.features.hits, self.prefixes.hits
        self.history.misses = self.features.misses, self.prefixes.misses
        return self.history

    def push(self, at: float, event: int, whom: int, version: int) -> None:
        self.pushed += 1
        heappush(self.heap, (at, self.pushed, event, whom, version))

    def require_progress(self) -> None:
        """Raises InputError where requests wait and nothing will happen any more."""
        number = next(each for each, done in enumerate(self.history.done) if done == NEVER)
        message = f"request {self.requests[number].id} waits, and nothing runs"
        raise InputError(message, where="--requests", fix="an instance of each stage with room for its tokens")

    # ---------------------------------------------------------------------------------------------------- what waits

    def wait(self, stage: str, number: int, now: float) -> None:
        """A request waits for a stage."""
        heappush(self.waiting[stage], (self.keys[number], number))
        self.note(now)

    def arrive(self, number: int, now: float) -> None:
        """A request comes: its images are encoded first where instances do nothing else, or with its prompt."""
        request = self.requests[number]
        if request.images:
            self.missing[number] = self.absent(request)
        if self.missing[number] and self.encodes_apart():
            if self.setup.blocking:
                self.wait("p", number, now)
            self.wait("e", number, now)
            for instance in self.instances:
                if instance.doing == IDLE and instance.stages == "e" and not instance.turning:
                    self.begin(instance, now)
                    break
        else:
            self.to_prompts(number, now)

    def absent(self, request: Request) -> tuple[int, ...]:
        """Tokens of the images of a request whose features are not kept; those that it has twice count once."""
        if not request.image_hashes:
            return request.images
        sizes = dict(zip(request.image_hashes, request.images, strict=True))
        return tuple(tokens for image, tokens in sizes.items() if not self.features.has(image))

    def encodes_apart(self) -> bool:
        """Whether an instance encodes and does nothing else."""
        return any(each.stages == "e" and not each.turning for each in self.instances)

    def to_prompts(self, number: int, now: float) -> None:
        """A prompt can be prefilled: the instance of fewest answers that is in no prompt comes to it first."""
        if not (self.setup.blocking and self.history.encode[number] != NEVER):  # else it is in the queue
            self.wait("p", number, now)
        best = None
        for instance in self.instances:
            able = instance.doing in (IDLE, ANSWERS) and "p" in instance.stages
            if able and not instance.turning and (best is None or instance.load < best.load):
                best = instance
        if best:
            self.interrupt(best, now)

    def interrupt(self, instance: Instance, now: float) -> None:
        """Let an instance look at its queues: at once if it is idle, else when the iteration that runs ends."""
        if instance.doing == IDLE:
            self.begin(instance, now)
        elif instance.doing == ANSWERS:
            count = instance.iterations_by(now - instance.since)
            if count < instance.segment:
                instance.segment = count
                self.schedule(instance, instance.since + instance.answers_seconds(count))

    def schedule(self, instance: Instance, at: float) -> None:
        instance.version += 1
        self.push(at, PASS, instance.number, instance.version)

    def note(self, now: float) -> None:
        if self.recording:
            encode, prefill, decode = map(len, self.waiting.values())
            self.history.queues.append((now, encode, prefill, decode))

    # ---------------------------------------------------------------------------------------- what an instance does

    def begin(self, instance: Instance, now: float) -> None:
        """At the end of an iteration: what an instance does next."""
        instance.since = now
        if instance.joining:
            self.join(instance, now)
        if instance.turning and self.leave(instance, now):
            return
        stages, free = instance.stages, instance.turning is None
        if stages == "e":
            if free and self.encode_next(instance, now):
                return
        elif "p" in stages:
            if free or instance.prompts:
                self.take_prompts(instance, now)
            if instance.prompts:
                self.prompts_pass(instance, now)
                return
        if instance.answers:
            instance.doing = ANSWERS
            instance.segment = instance.answers[0][0] - instance.iteration
            self.schedule(instance, now + instance.answers_seconds(instance.segment))
        else:
            instance.doing = IDLE

    def join(self, instance: Instance, now: float) -> None:
        """Requests whose keys and values have come go on."""
        for number in instance.joining:
            self.answer(instance, number, now)
        instance.joining.clear()

    def answer(self, instance: Instance, number: int, now: float) -> None:
        """A request's answer goes on here."""
        request, to_go = self.requests[number], self.to_go[number]
        self.history.joined[number] = now
        heappush(instance.answers, (instance.iteration + to_go, number))
        instance.answers_kv += request.prompt_tokens + request.output_tokens - to_go

    def encode_next(self, instance: Instance, now: float) -> bool:
        """Encode the images of the next request that has some without features; False where there is none."""
        queue = self.waiting["e"]
        if not queue:
            return False
        _, instance.encoding = heappop(queue)
        self.history.encode[instance.encoding] = now
        instance.doing = IMAGES
        assert instance.prices.encode
        self.schedule(instance, now + instance.prices.encode.seconds(self.missing[instance.encoding]))
        return True

    def take_prompts(self, instance: Instance, now: float) -> None:
        """Prompts from the queue, in its order, up to the first that has no room: as many as an iteration may have."""
        setup, prompts = self.setup, instance.prompts
        budget = setup.tokens - (len(instance.answers) if setup.chunked else 0)
        budget -= sum(left for _, left, _, _ in prompts)
        queue, answers = self.waiting["p"], "d" in instance.stages
        while queue and len(prompts) < setup.prompts and (budget > 0 or not prompts):
            number = queue[0][1]
            request = self.requests[number]
            waits = setup.blocking and self.missing[number] and "e" not in instance.stages
            size = pages(request.prompt_tokens + (request.output_tokens if answers else 0))
            if waits or instance.kv_used + size > instance.kv_room:
                break
            if answers and instance.load + len(prompts) >= setup.answers:
                break
            kept = 0
            if request.prefix and setup.prefix_cache:
                kept = min(self.prefixes.matched(request.prefix), request.prompt_tokens - 1)
            left = request.prompt_tokens - kept
            if not setup.chunked and prompts and left > budget:
                break
            heappop(queue)
            instance.kv_used += size
            self.holder[number] = instance.number
            self.history.prefill[number] = now
            prompts.append([number, left, kept, 0])
            budget -= left
        self.note(now)

    def prompts_pass(self, instance: Instance, now: float) -> None:
        """An iteration with prompts: whole ones before all answers go on, or parts beside them."""
        setup, price = self.setup, instance.prices.iteration
        answers = len(instance.answers) if setup.chunked else 0
        budget = max(1, setup.tokens - answers) if setup.chunked else inf
        total, pairs, images = answers, 0.0, 0.0
        for prompt in instance.prompts:
            number, left, done, _ = prompt
            part = left if left < budget else int(budget)
            prompt[3] = part
            budget -= part
            total += part
            pairs += part * (done + part * 0.5)
            if part and self.missing[number]:
                images += self.encode_here(instance, number, now)
        seconds = tabled(price.passes, total) + price.pair_s * pairs + images
        if answers:
            seconds += price.cached_s * instance.answers_kv
        instance.doing = PROMPTS
        self.schedule(instance, now + seconds)

    def encode_here(self, instance: Instance, number: int, now: float) -> float:
        """Seconds in which an instance that prefills encodes the images of a prompt itself."""
        request = self.requests[number]
        assert instance.prices.encode
        seconds = instance.prices.encode.seconds(self.missing[number])
        self.history.encode[number], self.history.encoded[number] = now, now + seconds
        self.keep_features(request)
        self.missing[number] = ()
        return seconds

    def keep_features(self, request: Request) -> None:
        for image, tokens in zip(request.image_hashes, request.images, strict=False):
            self.features.keep(image, tokens)

    # ------------------------------------------------------------------------------------------------------ its ends

    def ended(self, instance: Instance, now: float) -> None:
        """A pass of an instance has ended."""
        doing = instance.doing
        if self.recording and doing != IDLE:
            self.history.busy.append((instance.number, doing, instance.since, now))
        if doing == ANSWERS:
            self.advance(instance, instance.segment, now)
        elif doing == PROMPTS:
            self.prompts_ended(instance, now)
        elif doing == IMAGES:
            number = instance.encoding
            self.history.encoded[number] = now
            self.keep_features(self.requests[number])
            self.missing[number] = ()
            self.to_prompts(number, now)
        elif doing == SWITCH:
            self.turned(instance, now)
        if instance.doing == doing or instance.doing == IDLE:
            self.begin(instance, now)

    def advance(self, instance: Instance, count: int, now: float) -> None:
        """Iterations of all answers have ended, and so may some of these."""
        instance.iteration += count
        answers = instance.answers
        instance.answers_kv += count * len(answers)
        ended = False
        while answers and answers[0][0] <= instance.iteration:
            _, number = heappop(answers)
            request = self.requests[number]
            instance.answers_kv -= request.prompt_tokens + request.output_tokens
            self.finish(instance, number, now)
            ended = True
        if ended and instance.stages == "d":
            self.pull_decodes(now)

    def finish(self, instance: Instance, number: int, now: float) -> None:
        """A request has its last token."""
        request, history = self.requests[number], self.history
        history.done[number] = now
        self.release(instance, number)
        self.left -= 1
        self.answered = self.answered[0] + 1, self.answered[1] + request.output_tokens
        if self.service:
            slow = now - history.first[number] > self.service.tpot_s * (request.output_tokens - 1)
            self.late += slow and history.first[number] - request.arrival_s <= self.service.ttft_s

    def release(self, instance: Instance, number: int) -> None:
        """A request's keys and values leave an instance."""
        request = self.requests[number]
        instance.kv_used -= pages(request.prompt_tokens + (request.output_tokens if "d" in instance.stages else 0))

    def prompts_ended(self, instance: Instance, now: float) -> None:
        """An iteration with prompts has ended; those that are whole have a first token."""
        if self.setup.chunked and instance.answers:
            self.advance(instance, 1, now)
        going, history = list[list[int]](), self.history
        for prompt in instance.prompts:
            number, left, done, part = prompt
            if part < left:
                prompt[1], prompt[2] = left - part, done + part
                going.append(prompt)
                continue
            request = self.requests[number]
            history.first[number] = now
            if self.service:
                self.late += now - request.arrival_s > self.service.ttft_s
            if request.prefix and self.setup.prefix_cache:
                self.prefixes.keep(request.prefix)
            if request.output_tokens == 1:
                self.finish(instance, number, now)
            elif "d" in instance.stages:
                self.answer(instance, number, now)
            elif not self.send(number, now):
                self.wait("d", number, now)
        instance.prompts = going

    def send(self, number: int, now: float) -> bool:
        """Move a request's keys and values to where its answer goes on; False where there is no room."""
        request, best = self.requests[number], None
        size = pages_of(request)
        for instance in self.instances:
            if instance.stages != "d" or instance.load >= (self.setup.answers if best is None else best.load):
                continue
            if instance.kv_used + size <= instance.kv_room and not instance.turning:
                best = instance
        if best is None:
            return False
        best.kv_used += size
        best.incoming += 1
        self.target[number] = best.number
        prices = self.instances[self.holder[number]].prices
        seconds = max(prices.move_s, best.prices.move_s)
        tokens = request.prompt_tokens + request.output_tokens - 1 - self.to_go[number]
        seconds += tokens * max(prices.move_token_s, best.prices.move_token_s)
        self.push(now + seconds, MOVED, number, 0)
        return True

    def moved(self, number: int, now: float) -> None:
        """A request's keys and values have come to where its answer goes on."""
        source, there = self.instances[self.holder[number]], self.instances[self.target[number]]
        self.release(source, number)
        self.holder[number] = there.number
        there.incoming -= 1
        there.joining.append(number)
        self.interrupt(there, now)
        if source.doing == IDLE:
            self.begin(source, now)

    def pull_decodes(self, now: float) -> None:
        """Answers that wait for room, in the order of their queue, up to the first that has none."""
        queue = self.waiting["d"]
        while queue and self.send(queue[0][1], now):
            heappop(queue)
            self.note(now)

    # ----------------------------------------------------------------------------------------------------- decisions

    def ask(self, decide: ServingDecide, now: float, arrived: int) -> None:
        """Let the policy decide, and what it decides happen: first all of it is checked."""
        waiting = {stage: tuple(number for _, number in queue) for stage, queue in self.waiting.items()}
        views = tuple(view_of(each) for each in self.instances if each.stages)
        ended, tokens = self.answered
        going = sum(
            self.requests[number].output_tokens - end + each.iteration
            for each in self.instances
            for end, number in each.answers
        )
        of = self.requests.__getitem__
        new, self.asked = self.requests[self.asked : arrived], arrived
        state = ServingState(now, self.setup, self.degrees, views, new, waiting, (ended, tokens + going), of)
        actions = tuple(decide(state))
        require_possible_turns(actions, self.instances, self.degrees, now)
        for action in actions:
            instances = [self.instances[number] for number in action.instances]
            spec = InstanceSpec(action.stages, self.degrees[action.tp or instances[0].prices.tp])
            turning = Turning(instances, spec)
            for instance in instances:
                instance.turning = turning
            for instance in [*instances]:
                self.interrupt(instance, now)
        if actions:
            self.history.decisions.append((now, actions))

    def leave(self, instance: Instance, now: float) -> bool:
        """An instance that takes on other stages: when it is empty it does. Its answers go on elsewhere, where there is
        room for them; else it ends them first. Instances that become others together wait for the last.
        """
        busy = instance.answers or instance.prompts or instance.incoming or instance.kv_used
        if busy and instance.stages == "d":
            self.move_answers(instance, now)
            busy = instance.answers or instance.incoming or instance.kv_used
        if busy:
            return False
        assert instance.turning
        instance.doing, turning = SWITCH, instance.turning
        if all(each.doing == SWITCH for each in turning.instances):
            same = all(each.prices.tp == turning.spec.prices.tp for each in turning.instances)
            self.schedule(instance, now + self.setup.turn_seconds(None if same else turning.spec.prices))
        return True

    def turned(self, instance: Instance, now: float) -> None:
        """Instances have become others, on the same GPUs."""
        assert instance.turning
        spec, instances = instance.turning.spec, instance.turning.instances
        count = sum(each.prices.tp for each in instances) // spec.prices.tp
        while len(instances) < count:
            instances.append(Instance(len(self.instances), spec.prices))
            self.instances.append(instances[-1])
        for number, each in enumerate(instances):
            if self.recording and each is not instance and each.doing == SWITCH:
                self.history.busy.append((each.number, SWITCH, each.since, now))
            each.become(spec if number < count else spec._replace(stages=GONE))
        self.pull_decodes(now)
        for each in instances:
            if each is not instance:
                self.begin(each, now)

    def move_answers(self, instance: Instance, now: float) -> None:
        """Move answers to other instances that decode, as far as there is room; they go on when they have come."""
        kept = list[tuple[int, int]]()
        for end, number in sorted(instance.answers):
            request = self.requests[number]
            self.to_go[number] = end - instance.iteration
            if self.send(number, now):
                instance.answers_kv -= request.prompt_tokens + request.output_tokens - self.to_go[number]
            else:
                kept.append((end, number))
        instance.answers = kept


def work_seconds(request: Request, prices: StagePrices) -> float:
    """Seconds of work until a request's first token, if it were alone."""
    images = prices.encode.seconds(request.images) if prices.encode and request.images else 0.0
    return images + prices.iteration.prefill_seconds(request.prompt_tokens)
