"""Steps without a hint: scripts of optimizer calls, and where their steps end."""

from typing import Any

from fsdp_profile.capture.steps import _MAX_STEPS_IN_CYCLE, StepTracker


class Loop:
    """Plays calls of a training loop against a tracker and counts the steps it finds."""

    def __init__(self, num_optimizers: int) -> None:
        self.ends: list[int] = []
        self.tracker = StepTracker(self.ends.append)
        self.optimizers: list[Any] = [type("Optimizer", (), {})() for _ in range(num_optimizers)]
        for optimizer in self.optimizers:
            self.tracker.created(optimizer)

    def step(self, which: int, *, in_backward: bool = False, inner: int | None = None) -> None:
        self.tracker.step_begins(self.optimizers[which])
        if inner is not None:
            self.step(inner)
        self.tracker.step_ends(self.optimizers[which], in_backward=in_backward)
        self.tracker.settle(in_backward=in_backward)

    def forward(self) -> None:
        self.tracker.settle(in_backward=False)


def test_one_optimizer_ends_a_step_each_time() -> None:
    loop = Loop(1)
    for expected in (1, 2, 3):
        loop.forward()
        loop.step(0)
        assert len(loop.ends) == expected


def test_two_optimizers_that_alternate_make_one_step() -> None:
    loop = Loop(2)
    for expected in (0, 0, 2):
        assert len(loop.ends) == expected
        loop.step(0)
        loop.step(1)
    # The first cycle is known once the first optimizer steps again; from then on each end is told at once.
    assert len(loop.ends) == 3


def test_a_model_built_anew_has_steps_of_its_own() -> None:
    loop = Loop(1)
    loop.step(0)
    loop.step(0)
    loop.optimizers[0] = type("Optimizer", (), {})()
    loop.tracker.created(loop.optimizers[0])
    for expected in (3, 4):
        loop.step(0)
        assert len(loop.ends) == expected


def test_an_optimizer_that_no_longer_steps_is_not_waited_for() -> None:
    loop = Loop(1)
    loop.step(0)
    loop.optimizers.append(type("Optimizer", (), {})())
    loop.tracker.created(loop.optimizers[1])
    for _ in range(_MAX_STEPS_IN_CYCLE):
        loop.step(1)
    assert len(loop.ends) == 1  # it may be a critic
    for expected in (3, 4, 5):
        loop.step(1)
        assert len(loop.ends) == expected


def test_a_critic_of_five_steps_is_one_step_with_its_generator() -> None:
    loop = Loop(2)
    for expected in (5, 7, 8, 9):  # the generator is not known before it steps
        for which in (0, 0, 0, 0, 0, 1):
            loop.step(which)
        assert len(loop.ends) == expected


def test_an_optimizer_inside_another_counts_once() -> None:
    loop = Loop(2)
    del loop.optimizers[1:]
    inner = type("Optimizer", (), {})()
    loop.optimizers.append(inner)
    for expected in (1, 2):
        loop.step(0, inner=1)
        assert len(loop.ends) == expected


def test_optimizer_steps_in_backward_end_at_the_next_forward() -> None:
    loop = Loop(2)
    for expected in (0, 1, 2):
        loop.forward()
        assert len(loop.ends) == expected
        loop.step(0, in_backward=True)
        loop.step(1, in_backward=True)
        assert len(loop.ends) == expected
    loop.tracker.nothing_follows()
    assert len(loop.ends) == 3


def test_a_step_that_the_grad_scaler_skips_is_a_step() -> None:
    loop = Loop(1)
    loop.step(0)
    loop.tracker.scaler_steps()  # found inf: optimizer.step is not called
    loop.tracker.scaler_updates()
    assert len(loop.ends) == 2
    loop.tracker.scaler_steps()
    loop.step(0)
    loop.tracker.scaler_updates()
    assert len(loop.ends) == 3


def test_accumulation_makes_no_step_of_its_own() -> None:
    loop = Loop(1)
    for _ in range(4):
        loop.forward()
    loop.step(0)
    assert len(loop.ends) == 1
