"""Workers of one process. Those whose episodes wait openly share one thread; the others have a thread each."""

from __future__ import annotations

import functools
import gc
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from toolverse import waiting
from toolverse.rollout.crews.juggler import Juggler, Piece, Stopped
from toolverse.rollout.crews.pool import Ended
from toolverse.rollout.crews.settings import CrewSettings
from toolverse.rollout.episode import Recorder
from toolverse.rollout.jobs import Failed, Job, Played, PolicyFactory, Result, Worlds
from toolverse.rollout.tokens import TokenTrajectory

T = TypeVar("T")

Outcome = TokenTrajectory | str
"""What became of an episode: the trajectory, or the error in words."""


def result_of(job: Job, outcome: Outcome) -> Result:
    """The result that an outcome makes."""
    return Played(job, outcome) if isinstance(outcome, TokenTrajectory) else Failed(job, "error", outcome)


class Inbox:
    """Jobs for whoever asks first. Asking waits openly."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._asking: deque[Future[Job | None]] = deque()
        self._lock = threading.Lock()

    def put(self, job: Job) -> None:
        with self._lock:
            if not self._asking:
                self._jobs.append(job)
                return
            asking = self._asking.popleft()
        asking.set_result(job)

    def get(self) -> Job | None:
        with self._lock:
            if self._jobs:
                return self._jobs.popleft()
            asking: Future[Job | None] = Future()
            self._asking.append(asking)
        return waiting.result(asking)


def settle() -> None:
    """In a process of the workers' own, once their worlds are open: what there is now will stay.

    The passes of the garbage collector through 256 open worlds were a third of what their episodes cost. What an episode leaves
    behind is freed by counting references; cycles are rare, and looked for less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


class Aside:
    """A thread of one's own, started when it is first needed. `busy` while it does something."""

    def __init__(self) -> None:
        self.busy = False
        self._work: queue.SimpleQueue[Callable[[], None] | None] | None = None

    def do(self, work: Callable[[], T]) -> T:
        """Have `work` done there, and wait for it openly."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 (whoever waits gets it, whatever it is)
                done.set_exception(error)

        if self._work is None:
            self._work = queue.SimpleQueue()
            threading.Thread(target=_work_off, args=(self._work,), name="rollout-aside", daemon=True).start()
        self._work.put(run)
        self.busy = True
        try:
            return waiting.result(done)
        finally:
            self.busy = False

    def end(self) -> None:
        """The thread ends once it is free."""
        if self._work is not None:
            self._work.put(None)


def _work_off(work: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (piece := work.get()) is not None:
        piece()


class Worker:
    """Plays one job after the other until there are none or it is abandoned.

    Worlds and policies that wait openly are played in turns with other workers; all others on a thread of this worker's own,
    and so is everything that makes or closes worlds.

    Args:
        take: the next job, None if there is none any more.
        report: is given each job with its outcome; not after the worker was abandoned.
        retries: further tries of a job that failed, here and at once.
    """

    def __init__(
        self,
        take: Callable[[], Job | None],
        report: Callable[[Job, Outcome], None],
        make_policy: PolicyFactory,
        retries: int,
    ) -> None:
        self.job: Job | None = None
        self.recorder: Recorder | None = None
        self.heard_at = time.monotonic()
        self.abandoned = threading.Event()
        self.aside = Aside()
        self._ending = threading.Lock()
        self._worlds = Worlds()
        self._take, self._report, self._make_policy, self._retries = take, report, make_policy, retries

    def stalled(self, stall_s: float) -> bool:
        """Nothing has happened in the running episode for so long."""
        return self.job is not None and time.monotonic() - self.heard_at >= stall_s

    def leave(self) -> Job | None:
        """Abandon the worker; its job, which is not reported then. None if the episode has just ended: it is reported."""
        with self._ending:
            self.abandoned.set()
            return self.job

    def give_up(self, settings: CrewSettings) -> Result | None:
        """Abandon the worker; its episode is worth its turns, truncated, or without any a failure.

        None if the episode has just ended: then the worker reports it, and is not abandoned.
        """
        with self._ending:
            job, recorder = self.job, self.recorder
            if job is None:
                return None
            self.abandoned.set()
        if recorder is None or not recorder.turns:
            return Failed(job, "timeout", f"no turn within {settings.stall_s:g} s")
        recorder.cut("timeout")
        return Played(job, recorder.trajectory())

    def work(self) -> None:
        """All that it does."""
        try:
            while not self.abandoned.is_set() and (job := self._take()) is not None:
                outcome: Outcome = ""
                for _ in range(1 + self._retries):
                    self.recorder = None
                    self._heard()
                    self.job = job
                    try:
                        outcome = self._play(job)
                        break
                    # Whatever a world or a policy raises concerns this episode only.
                    except Exception as error:  # noqa: BLE001
                        outcome = f"{type(error).__name__}: {error}"
                        self.aside.do(self._close_worlds)
                        if self.abandoned.is_set():
                            return
                with self._ending:
                    self.job = None
                    if self.abandoned.is_set():
                        return
                self._report(job, outcome)
        finally:
            while True:
                try:
                    self.aside.do(self._close_worlds)
                    break
                except Stopped:
                    # Told only now, while it is leaving anyway: the worlds have to be closed all the same.
                    continue
            self.aside.end()

    def _play(self, job: Job) -> TokenTrajectory:
        worlds = self._worlds
        env = worlds.env(job) if job in worlds else self.aside.do(lambda: worlds.env(job))
        if waiting.waits_openly(env.unwrapped):
            policy = self._make_policy()
            if waiting.waits_openly(policy):
                return worlds.play(job, policy, self._watch)
            return self.aside.do(lambda: worlds.play(job, policy, self._watch))
        return self.aside.do(lambda: worlds.play(job, self._make_policy(), self._watch))

    def _watch(self, recorder: Recorder) -> Callable[[], None]:
        self.recorder = recorder
        return self._heard

    def _heard(self) -> None:
        self.heard_at = time.monotonic()

    def _close_worlds(self) -> None:
        try:
            self._worlds.close()
        except Exception:  # noqa: BLE001 (one of them has failed already)
            return


class Workers:
    """So many workers of this process.

    Args:
        take, report, retries: see `Worker`. `take` waits openly, if it waits.
        again: is given a job that has to be played from the start by another worker, through no fault of its own.
    """

    def __init__(
        self,
        number: int,
        take: Callable[[], Job | None],
        again: Callable[[Job], None],
        report: Callable[[Job, Outcome], None],
        make_policy: PolicyFactory,
        settings: CrewSettings,
        *,
        retries: int = 0,
    ) -> None:
        self._worker = functools.partial(Worker, take, report, make_policy, retries)
        self._again, self._settings = again, settings
        self._start(number)

    def _start(self, number: int) -> None:
        self._juggler = Juggler()
        self._crew: dict[Worker, Piece] = {}
        for _ in range(number):
            self._add()

    def _add(self) -> None:
        worker = self._worker()
        self._crew[worker] = self._juggler.start(worker.work)

    def patience(self) -> float:
        """Seconds until the first worker may have to be given up, at most a minute."""
        stall_s = self._settings.stall_s
        first = min((worker.heard_at for worker in self._crew if worker.job is not None), default=time.monotonic())
        return max(stall_s / 20, min(first + stall_s - time.monotonic(), 60.0))

    def give_up_late(self) -> list[Ended]:
        """What becomes of episodes in which nothing has happened for `stall_s`. Others take the place of their workers."""
        stall_s = self._settings.stall_s
        late = [worker for worker in self._crew if worker.stalled(stall_s)]
        held = self._juggler.turn
        if held is not None and time.monotonic() - held[1] >= stall_s / 4:
            # One episode keeps the thread to itself: as long as it does, there is nobody else to blame.
            stuck = [worker for worker in late if self._crew[worker] is held[0]]
            return self._leave(stuck[0]) if stuck else []
        ended = []
        for worker in late:
            if (result := worker.give_up(self._settings)) is not None:
                ended.append(Ended(result, worn=worker.aside.busy))
                self._dismiss(worker)
                self._add()
        return ended

    def _leave(self, stuck: Worker) -> list[Ended]:
        """Leave the shared thread to the one that holds it. The others begin anew in another."""
        if (result := stuck.give_up(self._settings)) is None:
            return []
        number = len(self._crew)
        del self._crew[stuck]
        for worker in list(self._crew):
            if (job := worker.leave()) is not None:
                self._again(job)
            self._dismiss(worker)
        self._juggler.close()
        self._start(number)
        return [Ended(result, worn=True)]

    def _dismiss(self, worker: Worker) -> None:
        # What it does in a thread of its own can't be ended; it leaves when that has.
        self._juggler.stop(self._crew.pop(worker))

    def dismiss(self) -> None:
        """No more episodes; none is waited for."""
        for worker in list(self._crew):
            worker.abandoned.set()
            self._dismiss(worker)
        self._juggler.close()
