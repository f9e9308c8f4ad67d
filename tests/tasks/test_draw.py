"""A limit draws at random and over as many groups as there can be."""

from quantflow.tasks.draw import draw_items

CLUSTERS = [f"passage {number // 4}" for number in range(80)]


def test_every_group_is_drawn_from_before_any_is_drawn_from_twice() -> None:
    drawn = draw_items(CLUSTERS, 20, seed=0, name="task")
    assert len({CLUSTERS[index] for index in drawn}) == 20


def test_equal_seeds_draw_the_same_and_others_do_not() -> None:
    drawn = draw_items(CLUSTERS, 30, seed=0, name="task")
    assert drawn == draw_items(CLUSTERS, 30, seed=0, name="task")
    assert drawn != draw_items(CLUSTERS, 30, seed=1, name="task")
    assert drawn != draw_items(CLUSTERS, 30, seed=0, name="other")


def test_items_are_not_the_first_ones() -> None:
    assert max(draw_items([str(number) for number in range(1000)], 20, seed=0, name="task")) > 500


def test_no_limit_and_one_beyond_the_task_take_everything_in_order() -> None:
    assert draw_items(CLUSTERS, None, seed=0, name="task") == list(range(80))
    assert draw_items(CLUSTERS, 99, seed=0, name="task") == list(range(80))
