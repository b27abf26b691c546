"""The promises of `Store` about what leaves it: only what is over, as a whole, and the log still verifies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from baton.errors import Conflict, Fenced, NotFound
from baton.lifecycle import Event, State
from baton.protocol.codec import digest
from baton.protocol.context import Blob, Context, Message, append
from baton.protocol.results import Return
from baton.protocol.variables import begin, freeze
from baton.stores.base import Step, Tombstone
from baton.stores.prune import Order, Pruned, prune
from baton.stores.retention import DAY, LEAST, Periods
from baton.stores.seal import seal
from baton.stores.sweep import sweep
from baton.stores.tombstone import Graves, replace
from baton.stores.verify import verify
from baton.testing.contracts.contract import HandoffContract, refuses
from baton.testing.contracts.evidence import MANY, names, trail
from baton.testing.contracts.work import allow, answer, claim_of, delegation, request

if TYPE_CHECKING:
    from baton.protocol.handoff import Handoff
    from baton.stores.base import Offer
    from baton.stores.report import Report

A_DAY = DAY / 1e6


def with_content(text: str) -> Offer:
    """A request with a message and a large variable, whose content stands in the store."""
    history, messages = append("", [Message("user", text)])
    state, values = freeze(begin({"large": text * 600}))
    offer = request(context=Context(history_ref=history, state_ref=state.ref))
    return replace(offer, blobs=[*messages, *values])


class RetentionContract(HandoffContract):
    """Subclass with `make`."""

    def ended(self, event: Event = Event.COMPLETE, offer: Offer | None = None, **more: Any) -> Handoff:
        """A workflow of one handoff that is over."""
        handoff = self.claimed(offer)
        self.step(handoff, event, **more)
        return handoff

    def days(self, days: float) -> None:
        """Let days pass; something is written and sealed each time, so that what was before is not the newest."""
        seal(self.store)
        self.wait(days * A_DAY)
        self.ended(Event.CANCEL)
        seal(self.store)

    def prune(self, **more: Any) -> Pruned:
        """Prune, and look whether all that remains is as it was written."""
        done = prune(self.store, Order(by="p", **more), lambda tombstone: tombstone)
        self.sound()
        return done

    def sound(self) -> Report:
        """The log verifies."""
        report = verify(self.store, deep=True)
        assert report.ok, str(report)
        return report

    def there(self, handoff: Handoff) -> bool:
        """Whether it is known; it goes together with its workflow."""
        found = self.store.get(handoff.id) is not None
        assert found == (self.store.workflow(handoff.workflow_id) is not None)
        return found

    def tombstones(self) -> list[Tombstone]:
        """What stands for what is gone."""
        return list(Graves(self.store.tombstones(), lambda _: True))

    # --- what goes ---------------------------------------------------------------------------------

    def test_what_is_over_goes_with_its_rows_and_its_content(self) -> None:
        offers = [with_content(f"text {number}") for number in range(3)]
        handoffs = [self.ended(offer=offer, result=answer()) for offer in offers]
        self.days(91)
        done = self.prune(reason="tidy")
        assert (done.records, done.segments, done.workflows) == (9, 1, 3)
        assert (done.contents, done.content_bytes) == (9, sum(len(b.data) for one in offers for b in one.blobs))
        assert not any(map(self.there, handoffs))
        for offer in offers:
            for blob in offer.blobs:
                refuses(NotFound, self.store.fetch, blob.digest)
        (left,) = self.tombstones()
        assert (left.first, left.last, left.by, left.reason, left.classes) == (1, 9, "p", "tidy", {"completed": 9})
        report = self.sound()
        assert (report.records, report.pruned, report.tombstones) == (3, 9, 1)

    def test_each_class_has_its_time(self) -> None:
        failed, refused = self.ended(Event.FAIL), self.ended(Event.CANCEL)
        seal(self.store)
        completed = self.ended()
        seal(self.store)
        parked = self.claimed()
        self.step(parked, Event.PARK)
        self.step(self.store.get(parked.id), Event.COMPLETE, by="p")
        every = [failed, refused, completed, parked]
        kept = []
        for days in (29, 2, 58, 2, 88, 2):  # 29, 31, 89, 91, 179 and 181 of them
            self.days(days)
            self.prune()
            kept.append([self.there(one) for one in every])
        assert kept == [
            [True] * 4, [False, False, True, True], [False, False, True, True], [False] * 3 + [True],
            [False] * 3 + [True], [False] * 4,
        ]  # fmt: skip

    def test_the_longest_class_of_a_workflow_holds_all_of_it(self) -> None:
        parent = self.claimed()
        part = self.claimed(delegation(parent))
        seal(self.store)
        self.step(part, Event.ESCALATE, to_agent="c")
        self.step(self.store.get(part.id), Event.CANCEL)
        self.step(parent, Event.COMPLETE)
        self.days(100)
        assert self.prune().records == 0
        assert self.there(parent)
        self.days(81)
        self.prune()
        assert not self.there(parent)
        assert self.store.get(part.id) is None

    def test_what_is_open_stays_whatever_its_age(self) -> None:
        waits, over = self.claimed(), self.ended()
        self.days(1000)
        self.prune()
        assert self.there(waits)
        assert not self.there(over)
        assert names(self.store, over.id), "its records share a segment with what is open"
        self.step(waits, Event.COMPLETE)
        self.days(91)
        self.prune()
        assert not self.there(waits)
        assert not names(self.store, over.id)

    def test_other_periods(self) -> None:
        over = self.ended()
        self.days(91)
        assert self.prune(periods=replace(LEAST, completed=100 * DAY)).records == 0
        assert self.there(over)
        assert self.prune(periods=Periods(completed=90 * DAY)).records == 3

    def test_alerts_go_when_they_were_answered_long_ago(self) -> None:
        old, open_ = self.store.raise_alert("s", "old"), self.store.raise_alert("s", "open")
        self.store.resolve_alert(old, "p")
        self.wait(91 * A_DAY)
        self.store.resolve_alert(self.store.raise_alert("s", "new"), "p")
        assert self.prune().alerts == 1
        assert [one.text for one in self.store.alerts(unresolved=False)] == ["open", "new"]
        assert self.store.alerts()[0].id == open_

    # --- what stays --------------------------------------------------------------------------------

    def test_a_segment_goes_wherever_it_stands_and_the_newest_stays(self) -> None:
        waits = self.claimed()
        seal(self.store)
        over = self.ended()
        seal(self.store)
        newest = self.ended()
        seal(self.store)
        self.wait(91 * A_DAY)
        assert self.prune().records == 3
        assert [self.there(one) for one in (waits, over, newest)] == [True, False, False]
        assert [len(names(self.store, one.id)) for one in (waits, over, newest)] == [2, 0, 3]
        assert [segment.n for segment in self.store.segments()] == [1, 3]
        assert self.prune().records == 0

    def test_a_chain_goes_on_behind_records_that_were_pruned(self) -> None:
        first = self.claimed()
        seal(self.store)
        self.step(first, Event.COMPLETE)
        waits = self.claimed()  # keeps the segment of the end
        seal(self.store)
        self.days(91)
        assert self.prune().records == 2
        assert names(self.store, first.id) == ["completed"]
        refuses(NotFound, self.step, first, Event.COMPLETE, result=answer("late"))
        self.step(waits, Event.COMPLETE)
        self.days(91)
        self.prune()
        assert names(self.store, first.id) == []
        assert self.sound().pruned == 9

    def test_the_end_of_a_chain_may_go_before_its_beginning(self) -> None:
        first, waits = self.claimed(), self.claimed()
        seal(self.store)
        self.step(first, Event.COMPLETE)
        self.days(91)
        assert self.prune().records == 1
        assert names(self.store, first.id) == ["initiated", "accepted"]
        assert self.prune().records == 0
        self.step(waits, Event.COMPLETE)
        self.days(91)
        self.prune()
        assert names(self.store, first.id) == names(self.store, waits.id) == []

    def test_what_was_written_after_an_end_keeps_it_and_its_chain(self) -> None:
        first = self.claimed()
        self.step(first, Event.COMPLETE, result=answer("right"))
        self.days(80)
        refuses(Fenced, self.step, first, Event.COMPLETE, result=answer("late"))
        waits = self.claimed()
        self.days(20)
        assert self.prune().records == 0
        assert self.there(first)
        self.days(71)
        assert self.prune().over["completed"] == 4
        assert names(self.store, first.id) == ["late"]
        self.step(waits, Event.COMPLETE)
        self.days(91)
        self.prune()
        assert names(self.store, first.id) == []

    def test_what_is_open_or_has_news_is_not_forgotten(self) -> None:
        over, waits, first = self.ended(), self.claimed(), self.ended()
        seen = self.store.audit()[-1].seq
        refuses(Fenced, self.step, first, Event.COMPLETE, result=answer("late"))
        flows = [one.workflow_id for one in (over, waits, first)]
        assert self.store.forget(flows, seen) == (1, flows[1:])
        assert [self.there(one) for one in (over, waits, first)] == [False, True, True]
        assert self.store.forget(flows, seen + 1) == (1, flows[1:2])

    def test_content_that_something_else_refers_to_stays(self) -> None:
        shared = with_content("shared")
        self.ended(offer=shared)
        self.days(91)
        again = with_content("shared")
        context = again.handoff.context
        longer, messages = append(context.history_ref, [Message("assistant", "more")])
        lasting = replace(again, handoff=replace(again.handoff, context=replace(context, history_ref=longer)))
        handoff = self.claimed(replace(lasting, blobs=[*again.blobs, *messages]))
        self.step(handoff, Event.RECLAIM)
        late = Return(history_ref="no digest at all")
        refuses(Fenced, self.step, handoff, Event.COMPLETE, result=late)
        assert self.prune().contents == 0
        for blob in [*shared.blobs, *messages]:
            assert self.store.fetch(blob.digest) == blob.data
        assert self.store.fetch(trail(self.store, handoff.id)[-1].detail["result"])

    def test_what_an_answer_refers_to_stays(self) -> None:
        said, messages = append("", [Message("assistant", "the answer")])
        added = replace(begin({"seen": ["x" * 600]}), added={"seen": ["y"]})
        changed, values = freeze(added)
        assert len(values) == 3
        given = Return(history_ref=said, state_ref=changed.ref)
        self.ended(result=given, offer=request(), blobs=[*messages, *values])
        self.ended(result=Return(history_ref=digest(b"{}")), blobs=[Blob(digest(b"{}"), b"{}")])
        assert sweep(self.store) == (0, 0)

    def test_a_dry_run_writes_nothing(self) -> None:
        handoff = self.ended(offer=with_content("x"))
        self.days(91)
        version = self.store.audit(limit=MANY), self.store.segments(), self.store.contents()
        would = prune(self.store, Order(by="p", dry_run=True), lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
        assert (would.records, would.workflows, would.contents) == (3, 1, 0)
        assert (self.store.audit(limit=MANY), self.store.segments(), self.store.contents()) == version
        assert self.there(handoff)
        assert self.prune().records == would.records

    def test_nothing_but_what_was_looked_at_is_buried(self) -> None:
        self.ended()
        self.claimed()
        self.days(1)
        one, two = self.store.segments()
        stone = {
            "log": self.store.id, "n": 1, "to": 1, "first": 1, "last": 5, "previous": "", "root": one.root,
            "oldest": 0, "newest": 0, "classes": {}, "time": 0, "by": "p",
        }  # fmt: skip
        before = self.store.audit(), self.store.segments(), self.store.find()
        wrong: list[dict[str, Any]] = [
            {"root": two.root},
            {"last": 4},
            {"n": 2, "to": 2, "first": 6, "last": 8, "previous": one.root, "root": two.root},
            {"to": 2, "last": 8, "root": two.root},
            {"to": 3, "last": 9},
            {"n": 7, "to": 7},
        ]
        for fields in wrong:
            refuses(Conflict, self.store.bury, Tombstone(**{**stone, **fields}))
            assert (self.store.audit(), self.store.segments(), self.store.find()) == before
        assert self.store.tombstones() == []
        self.sound()

    def test_work_goes_on_after_pruning(self) -> None:
        for _ in range(3):
            self.ended(Event.FAIL)
        offered = self.offer()
        self.step(offered, Event.CANCEL)
        self.days(91)
        assert self.prune().records > 10
        new = self.offer()
        assert self.store.claim(replace(claim_of(""), id="", agents=("a",)), allow).handoff.id == new.id
        self.wait(10)
        assert [one.id for one in self.store.due()] == [new.id]
        self.step(self.store.get(new.id), Event.COMPLETE, result=answer())
        assert self.store.next_due() is None
        assert self.store.find(newest=True, limit=1)[0].state is State.COMPLETED
        refuses(NotFound, self.store.advance, Step(id=offered.id, event=Event.CANCEL))
        seal(self.store)
        self.sound()
