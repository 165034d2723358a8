"""The order of jobs: round robin over owners; within an owner's queue single requests before batches, then order of arrival.

Every owner has a turn, the number of the round in which its next job is taken. A claimed job advances its owner's turn by one. An owner whose queue was
empty joins at the turn being served, so an owner cannot save up turns, and never waits for more than one round of another owner's jobs (start-time fair
queueing). The order of queued jobs therefore never changes; new jobs are only inserted between them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

# How much of the queue a claim reads: jobs in all, and of one owner.
WINDOW = 256
DEEPEST = 64
# A job whose model is loaded may overtake the head of the queue for this long (s), or by this many rounds.
PATIENCE_SECONDS = 10.0
PATIENCE_ROUNDS = 1
# Most inputs of one forward pass: it bounds what a lost worker costs and how long the next owner waits.
LARGEST_GROUP = 64


@dataclass(frozen=True, slots=True)
class Waiting:
    """What decides the order of a queued job. `number` counts arrivals; `turn` is the round in which it is taken."""

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
    """Merge the heads of the owners' queues into the head of the whole queue."""
    jobs = [job for queue in queues for job in queue]
    return sorted(jobs, key=lambda job: (job.turn, job.priority, job.number))


def prefer_warm(waiting: Sequence[Waiting], warm: Collection[str], passed_over: float) -> list[Waiting]:
    """Return the queue in the order in which a worker with these models in memory takes it.

    Jobs whose model is loaded come first if that is fair: before jobs of the same owner, or before others' by one round at most, and only until the head
    of the queue has been passed over for PATIENCE_SECONDS.
    """
    if not waiting or not 0 <= passed_over <= PATIENCE_SECONDS:  # negative after the clock was set back
        return list(waiting)
    head = waiting[0]

    def is_first(job: Waiting) -> bool:
        fair = job.owner == head.owner or job.turn <= head.turn + PATIENCE_ROUNDS
        return fair and job.priority <= head.priority and job.model in warm

    return sorted(waiting, key=lambda job: not is_first(job))


def count_companions(job: Waiting, most_tokens: int) -> int:
    """Return how many other jobs may share the forward pass. A job that has lost a worker runs alone, so that it cannot fail others again."""
    if not job.alike or not job.tokens or job.attempts:
        return 0
    return max(min(most_tokens // job.tokens, LARGEST_GROUP) - 1, 0)
