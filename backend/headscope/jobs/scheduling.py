"""Whose turn it is: round robin over owners, and within an owner's queue single requests before batches, then order of arrival.

Every owner has a turn, the number of the round in which its next job is taken. A claimed job moves its owner's turn on by one; an owner who joins
the line gets the turn that is being served, so nobody saves turns up, and nobody waits behind more than one round of somebody else's jobs
(start-time fair queueing). The order of what waits already therefore never changes; newcomers only step in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

# How much of the line a claim looks at: so many jobs in all, and so many of one owner.
WINDOW = 256
DEEPEST = 64
# A warm model's job may go before the head of the line for this long (s), or by this many rounds.
PATIENCE_SECONDS = 10.0
PATIENCE_ROUNDS = 1
# Most inputs of one forward pass: a lost worker costs no more than that, and the next owner waits for no more than that.
LARGEST_GROUP = 64


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued job, as far as the order goes. `number` counts arrivals; `turn` is the round in which it is taken."""

    id: str
    owner: str
    turn: int
    priority: int
    number: int
    model: str
    alike: bool
    tokens: int | None
    attempts: int


def merge(queues: Iterable[Sequence[Waiting]]) -> list[Waiting]:
    """The front of the line from the fronts of the owners' queues."""
    jobs = [job for queue in queues for job in queue]
    return sorted(jobs, key=lambda job: (job.turn, job.priority, job.number))


def prefer_warm(waiting: Sequence[Waiting], warm: Collection[str], passed_over: float) -> list[Waiting]:
    """The line as a worker with these models in memory takes it.

    Jobs of a warm model go first where that is fair: among the owner's own, or against others by one round at most, and only until the head of the
    line has been passed over for PATIENCE_SECONDS.
    """
    if not waiting or not 0 <= passed_over <= PATIENCE_SECONDS:  # a clock that was put back must not make anybody wait
        return list(waiting)
    head = waiting[0]

    def first(job: Waiting) -> bool:
        fair = job.owner == head.owner or job.turn <= head.turn + PATIENCE_ROUNDS
        return fair and job.priority <= head.priority and job.model in warm

    return sorted(waiting, key=lambda job: not first(job))


def count_companions(job: Waiting, most_tokens: int) -> int:
    """How many others may share the job's forward pass. One that has lost a worker runs alone, lest it take others along again."""
    if not job.alike or not job.tokens or job.attempts:
        return 0
    return max(min(most_tokens // job.tokens, LARGEST_GROUP) - 1, 0)
