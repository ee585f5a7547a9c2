"""The loop of all interruptions: a job is harmed again and again, goes on, and is compared."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.forked import Ended, forked, tell
from tests.soak.harms import Harm
from tests.soak.works import DAMAGES, State, Work, Wrong, damaged, state_of, succeed

_LEFT = ("lock.json", "lease.json")  # of a job that was ended; cuts of power may bring them back


@dataclass(frozen=True)
class Known:
    """What a job makes in peace, what it may replace, and in how many moments it may be harmed."""

    made: State
    other: State
    moments: int


@dataclass
class Soak:
    """Jobs that are harmed.

    Args:
        harm: How.
        chance: What is drawn at random.
    """

    harm: Harm
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[Wrong] = field(default_factory=list)
    known: dict[str, Known] = field(default_factory=dict)

    def run(self, jobs: Iterable[Work], harms: int) -> None:
        """Harm these jobs in turn, so often."""
        jobs, turn = list(jobs), 0
        while self.done.total() < harms:
            work, turn = jobs[turn % len(jobs)], turn + 1
            where = self.harm.home / f"{turn}"
            where.mkdir()
            self._harmed(work, where / "made", self._known(work))
            shutil.rmtree(where, ignore_errors=True)

    def _known(self, work: Work) -> Known:
        if work.name not in self.known:
            place, other = self.harm.home / "peace" / "made", dict[str, bytes]()
            place.parent.mkdir()
            if work.other:
                succeed(forked(work.action(place, other=True)))
                other = state_of(place)
                shutil.rmtree(place.parent)
                place.parent.mkdir()
            self._begun(work, place, False)
            moments = self.harm.count(work.action(place), place)
            self.known[work.name] = Known(state_of(place), other, moments)
            shutil.rmtree(place.parent)
        return self.known[work.name]

    def _begun(self, work: Work, place: Path, replacing: bool) -> None:
        """What is in the place before the job."""
        if work.source is not None:
            shutil.copytree(work.source, place)
            keys = sorted(state_of(place).keys() - {"seal.json"})  # copies of what is damaged
            for key in self.chance.sample(keys, 4):
                damaged(place, key, self.chance.choice(DAMAGES), self.chance)
        elif replacing:
            succeed(forked(work.action(place, other=True)))

    def _harmed(self, work: Work, place: Path, known: Known) -> None:
        replacing = bool(work.other) and self.chance.random() < 0.5
        self._begun(work, place, replacing)
        self.harm.settle()
        options = ("--overwrite",) if replacing else ()
        before = known.other if replacing else {}
        what, ended = work.name, Ended(0, "")
        for _ in range(self.harm.patience):
            ended, event = self.harm(work.action(place, *options), place, known.moments)
            if event:
                self.done[f"{work.name}: {event}"] += 1
                what = f"{work.name} {' '.join(options)}, {event}"
                self._looked_at(work, place, [before, known.made], what)
                overwriting = ("--overwrite",) * bool(work.again)
                options = self.chance.choice([work.again] * 3 + [overwriting])
            elif ended.refused and replacing and options != ("--overwrite",):
                options = ("--overwrite",)  # the other one is still there
            else:
                break
        else:
            options = ("--overwrite",) if replacing else options
            ended = forked(work.action(place, *options))
        self._ended(work, place, known.made, what, ended)

    def _looked_at(self, work: Work, place: Path, allowed: list[State], what: str) -> None:
        """What a harm has left: complete where the job says so."""
        if work.whole:
            found = state_of(place)
            if found not in allowed and not (work.vanishing and not found):
                self._say(what, "it is neither the old copy nor the new one", "silent")
            if not found and allowed[0]:  # one that is refused brings it back as well
                ended = forked(work.action(place))
                if not ended.refused or state_of(place) != allowed[0]:
                    self._say(what, f"a copy was forgotten: {ended.why}", "unfinished")
        elif work.check and place.exists() and self.chance.random() < 0.5:
            faults = work.faults(place)
            if "Traceback" in faults or "exit status 3" in faults:
                self._say(what, faults, "tracebacks")
            found = [_different(place, each, _LEFT) for each in allowed]
            if not faults and all(found):
                self._say(what, f"no fault is found in {found[1]}", "silent")

    def _ended(self, work: Work, place: Path, made: State, what: str, ended: Ended) -> None:
        """Compare what is there after the end, and after what is to happen then."""
        if ended.status:
            self._say(what, ended.why, "unfinished")
            again = forked(work.action(place, *(("--overwrite",) if work.again else ())))
            if again.status:
                return self._say(what, f"not even --overwrite: {again.why}", "unfinished")
        if left := sorted({path.name for path in place.parent.iterdir()} - {place.name}):
            self._say(what, f"{', '.join(left)} is left beside it", "unfinished")
        after = self.harm.after(work, place)
        different, faults = _different(place, made, _LEFT if after else ()), work.faults(place)
        if different and work.check and not faults:
            self._say(what, f"{different} differ, and no fault is found", "silent")
        elif different or faults:
            fault = "lost" if after else "unfinished"
            self._say(f"{what} {after}", f"{different} differ; {faults}", fault)
        return None

    def _say(self, what: str, why: str, fault: str) -> None:
        self.wrong.append(Wrong(what, why, fault))
        tell(self.wrong[-1])


def _different(place: Path, expected: State, ignored: tuple[str, ...] = ()) -> str:
    """The first files that are not as expected; "" where all are."""
    found = state_of(place)
    keys = [k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k)]
    if ignored:
        keys = [k for k in keys if k not in ignored and not k.endswith(".partial")]
    return ", ".join(sorted(keys)[:4])
