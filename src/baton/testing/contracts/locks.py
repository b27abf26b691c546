"""The promises of `Store` about locks: whom they keep out, in which order, and when they end."""

from __future__ import annotations

from typing import Any

from baton.errors import Fenced
from baton.lifecycle import Event
from baton.protocol.locks import Wanted
from baton.stores.base import LockAnswer, LockRequest, Step
from baton.testing.contracts.contract import Contract, refuses
from baton.testing.contracts.work import allow, answer, claim_of, delegation, request

SECOND = 1_000_000


class LockContract(Contract):
    """Subclass with `make`."""

    def ask(self, owner: str, *paths: str, **more: Any) -> LockAnswer:
        """Ask for some files."""
        wanted = tuple(Wanted(path) for path in paths)
        given: LockAnswer = self.store.lock(LockRequest(owner=owner, wanted=wanted, **more))
        return given

    def kept_out_by(self, owner: str, *paths: str, **more: Any) -> set[str]:
        """Who keeps an owner out."""
        return {one.owner for one in self.ask(owner, *paths, **more).blockers}

    def working(self, offer: Any = None) -> Any:
        """A claimed handoff."""
        made = self.store.offer(offer or request(), allow)[0]
        return self.store.claim(claim_of(made.id), allow).handoff

    def test_one_owner_of_an_exclusive_lock(self) -> None:
        assert not self.kept_out_by("x", "/r/a")
        assert self.kept_out_by("y", "/r/a") == {"x"}
        assert self.kept_out_by("y", "/r/a", shared=True) == {"x"}
        assert not self.kept_out_by("y", "/r/b")
        assert [(one.owner, one.path) for one in self.store.locks()] == [("x", "/r/a"), ("y", "/r/b")]

    def test_shared_locks_go_together_and_keep_an_exclusive_one_out(self) -> None:
        assert not self.kept_out_by("x", "/r/a", shared=True)
        assert not self.kept_out_by("y", "/r/a", shared=True)
        assert self.kept_out_by("z", "/r/a") == {"x", "y"}

    def test_all_files_or_none(self) -> None:
        assert not self.kept_out_by("x", "/r/b")
        assert self.kept_out_by("y", "/r/a", "/r/b", "/r/c") == {"x"}
        assert [one.path for one in self.store.locks()] == ["/r/b"]

    def test_a_folder_stands_for_what_is_below_it(self) -> None:
        assert not self.kept_out_by("x", "/r/src")
        assert self.kept_out_by("y", "/r/src/deep/a") == {"x"}
        assert self.kept_out_by("y", "/r") == {"x"}
        assert not self.kept_out_by("y", "/r/src2")

    def test_one_file_by_two_names_is_one_file(self) -> None:
        first = LockRequest(owner="x", wanted=(Wanted("/r/a", "1:7"),))
        assert not self.store.lock(first).blockers
        again = self.store.lock(LockRequest(owner="y", wanted=(Wanted("/r/link", "1:7"),)))
        assert [one.owner for one in again.blockers] == ["x"]

    def test_an_owner_may_ask_again_and_change_the_kind(self) -> None:
        assert not self.kept_out_by("x", "/r/a", shared=True)
        assert not self.kept_out_by("x", "/r/a")
        assert self.kept_out_by("y", "/r/a", shared=True) == {"x"}
        assert len(self.store.locks()) == 1

    def test_unlock_frees_what_was_named_or_all(self) -> None:
        self.ask("x", "/r/a", "/r/b", "/r/c")
        assert self.store.unlock("x", ["/r/a"]) == 1
        assert not self.kept_out_by("y", "/r/a")
        assert self.kept_out_by("y", "/r/b") == {"x"}
        assert self.store.unlock("x") == 2
        assert self.store.unlock("x") == 0
        assert not self.kept_out_by("y", "/r/b", "/r/c")

    def test_a_lease_ends(self) -> None:
        self.ask("x", "/r/a", lease=5 * SECOND)
        self.wait(4.9)
        assert self.kept_out_by("y", "/r/a") == {"x"}
        self.wait(0.2)
        assert not self.kept_out_by("y", "/r/a")
        assert [one.owner for one in self.store.locks()] == ["y"]

    def test_those_who_wait_are_served_in_order(self) -> None:
        self.ask("x", "/r/a", shared=True)
        assert self.kept_out_by("writer", "/r/a", queue=60 * SECOND) == {"x"}
        # A reader that comes later does not overtake the writer, or that one would wait for ever.
        assert self.kept_out_by("reader", "/r/a", shared=True, queue=60 * SECOND) == {"writer"}
        self.store.unlock("x")
        assert self.kept_out_by("reader", "/r/a", shared=True, queue=60 * SECOND) == {"writer"}
        assert not self.kept_out_by("writer", "/r/a", queue=60 * SECOND)
        self.store.unlock("writer")
        assert not self.kept_out_by("reader", "/r/a", shared=True, queue=60 * SECOND)
        assert [(one.owner, one.granted) for one in self.store.locks()] == [("reader", True)]

    def test_a_place_in_the_queue_ends_with_its_time_or_by_hand(self) -> None:
        self.ask("x", "/r/a", shared=True, lease=3600 * SECOND)
        self.ask("gone", "/r/a", queue=5 * SECOND)
        self.ask("left", "/r/a", queue=3600 * SECOND)
        assert self.store.unlock("left", queued=True) == 1
        assert self.kept_out_by("reader", "/r/a", shared=True) == {"gone"}
        self.wait(6)
        assert not self.kept_out_by("reader", "/r/a", shared=True)

    def test_a_circle_is_found_when_it_would_close(self) -> None:
        self.ask("x", "/r/a")
        self.ask("y", "/r/b")
        self.ask("z", "/r/c")
        assert not self.ask("x", "/r/b", queue=60 * SECOND).circle
        assert not self.ask("y", "/r/c", queue=60 * SECOND).circle
        closed = self.ask("z", "/r/a", queue=60 * SECOND)
        assert set(closed.circle) == {"x", "y", "z"}
        # The one who was told has no place; the others go on once it gives back.
        self.store.unlock("z")
        assert not self.kept_out_by("y", "/r/c", queue=60 * SECOND)

    def test_two_who_share_and_both_want_it_alone_are_a_circle(self) -> None:
        self.ask("x", "/r/a", shared=True)
        self.ask("y", "/r/a", shared=True)
        assert not self.ask("x", "/r/a", queue=60 * SECOND).circle
        assert set(self.ask("y", "/r/a", queue=60 * SECOND).circle) == {"x", "y"}

    def test_a_lock_of_a_handoff_ends_with_its_claim_however_that_ends(self) -> None:
        ends: list[tuple[Event, dict[str, Any]]] = [
            (Event.COMPLETE, {"result": answer()}),
            (Event.FAIL, {}),
            (Event.RELEASE, {}),
            (Event.RECLAIM, {}),
            (Event.RETRY, {}),
            (Event.PARK, {}),
            (Event.CANCEL, {}),
        ]
        for event, more in ends:
            taken = self.working()
            assert not self.kept_out_by(taken.id, "/r/a", epoch=taken.epoch), event
            assert self.kept_out_by("other", "/r/a") == {taken.id}, event
            self.store.advance(Step(id=taken.id, event=event, **more), allow)
            assert self.store.locks() == [], event

    def test_a_reminder_frees_nothing(self) -> None:
        taken = self.working()
        self.ask(taken.id, "/r/a", epoch=taken.epoch)
        self.store.advance(Step(id=taken.id, event=Event.REMIND, due_at=self.store.now() + SECOND), allow)
        assert self.kept_out_by("other", "/r/a") == {taken.id}

    def test_a_lock_of_a_handoff_needs_its_current_claim(self) -> None:
        taken = self.working()
        self.store.advance(Step(id=taken.id, event=Event.RECLAIM), allow)
        wanted = LockRequest(owner=taken.id, epoch=taken.epoch, wanted=(Wanted("/r/a"),))
        assert "no longer current" in refuses(Fenced, self.store.lock, wanted)
        assert self.store.locks() == []

    def test_an_earlier_claim_gives_back_nothing_of_a_later_one(self) -> None:
        taken = self.working()
        self.ask(taken.id, "/r/a", epoch=taken.epoch)
        self.store.advance(Step(id=taken.id, event=Event.RECLAIM), allow)
        again = self.store.claim(claim_of(taken.id), allow).handoff
        assert not self.kept_out_by(again.id, "/r/a", epoch=again.epoch)
        for queued in (False, True):
            assert self.store.unlock(taken.id, ["/r/a"], epoch=taken.epoch, queued=queued) == 0
        assert self.kept_out_by("other", "/r/a") == {again.id}
        assert self.store.unlock(again.id, ["/r/a"], epoch=again.epoch) == 1
        assert not self.kept_out_by("other", "/r/a")

    def test_a_part_may_use_what_its_parent_locked_but_its_sibling_may_not_use_its(self) -> None:
        parent = self.working()
        self.ask(parent.id, "/r/src", epoch=parent.epoch)
        one, two = (self.working(delegation(parent)) for _ in "12")
        assert not self.kept_out_by(one.id, "/r/src/a", epoch=one.epoch)
        assert self.kept_out_by(two.id, "/r/src/a", epoch=two.epoch) == {one.id}
        assert not self.kept_out_by(two.id, "/r/src/b", epoch=two.epoch)
        assert self.kept_out_by("stranger", "/r/src/c") == {parent.id}

    def test_who_waits_for_the_parent_does_not_keep_its_part_out(self) -> None:
        parent = self.working()
        self.ask(parent.id, "/r/a", epoch=parent.epoch)
        self.ask("stranger", "/r/a", queue=60 * SECOND)
        part = self.working(delegation(parent))
        assert not self.kept_out_by(part.id, "/r/a", epoch=part.epoch)

    def test_a_part_that_waits_makes_its_parent_wait(self) -> None:
        parent, stranger = self.working(), self.working()
        self.ask(parent.id, "/r/a", epoch=parent.epoch)
        self.ask(stranger.id, "/r/b", epoch=stranger.epoch)
        part = self.working(delegation(parent))
        assert not self.ask(part.id, "/r/b", epoch=part.epoch, queue=60 * SECOND).circle
        circle = self.ask(stranger.id, "/r/a", epoch=stranger.epoch, queue=60 * SECOND).circle
        assert set(circle) == {stranger.id, parent.id, part.id}
