"""Tasks run where they are wished to, in the order of their keys, and anywhere else where that cannot be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster, get_worker

from pairsym_dask.run.bundles import Hands
from pairsym_dask.run.execute import Attempt, Executor
from pairsym_dask.run.graph import Graph
from pairsym_dask.run.placement import spread_out
from pairsym_dask.run.progress import Progress

pytestmark = pytest.mark.cluster
ORDER: list[int] = []


def here(*_: Any) -> str:
    return str(get_worker().address)


def note(number: int) -> int:
    ORDER.append(number)
    return number


def here_after(seconds: float, *_: Any) -> str:
    time.sleep(seconds)
    return here()


def where_all(*parts: Any) -> list[Any]:
    """Where this ran, and what it was given."""
    return [here(), *parts[1:]]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Of two workers, none of which takes work from the other."""
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def addresses(client: Client) -> list[str]:
    return sorted(client.scheduler_info(n_workers=-1)["workers"])


def run(client: Client, graph: Graph, keys: list[str]) -> list[Any]:
    return Executor(client).run(graph.nodes, keys, workers=graph.workers)


def test_tasks_run_on_the_workers_that_they_are_wished_to(client: Client) -> None:
    workers, graph = addresses(client), Graph("placed", 1)
    wished = [workers[k % 2] for k in (0, 1, 1, 0, 0, 0, 1)]
    keys = [graph.add("here", k, here, graph.job, at=worker) for k, worker in enumerate(wished)]
    near = [graph.add("near", k, here, graph.job, key, near=key) for k, key in enumerate(keys)]
    assert run(client, graph, [*keys, *near]) == 2 * wished


def test_sums_are_made_where_they_are_wished_and_go_on_near_their_first_parts(client: Client) -> None:
    workers, graph = addresses(client), Graph("sums", 1)
    keys = [graph.add("here", k, here, graph.job, at=workers[0]) for k in range(4)]
    root = graph.tree("sum", 0, where_all, keys, 2, iter([workers[1], workers[0]]))
    (found,) = run(client, graph, [root])
    assert found == [workers[1], [workers[1], workers[0], workers[0]], [workers[0], workers[0], workers[0]]]


def test_a_task_whose_worker_has_gone_runs_elsewhere(client: Client) -> None:
    graph = Graph("gone", 1)
    keys = [graph.add("here", k, here, graph.job, at="tcp://127.0.0.1:1") for k in range(3)]
    assert set(run(client, graph, keys)) <= set(addresses(client))


def begin(client: Client, scattered: bool = False) -> Attempt[Any]:
    """An attempt at a sweep."""
    job = SimpleNamespace(folder="generation-1", scattered=scattered)
    return Attempt[Any](job, {}, Executor(client), Progress(False, 1))


def where(attempt: Attempt[Any], tasks: int, seconds: float = 0.0) -> list[str]:
    """Workers of a pass of so many tasks, which share a value."""
    graph = attempt.new_graph()
    return attempt.run("begin", graph, [graph.add("begin", k, here_after, seconds, graph.job) for k in range(tasks)])


@pytest.mark.parametrize("tasks", [2, 5, 40])
def test_a_pass_is_spread_over_all_workers_and_the_next_one_alike(client: Client, tasks: int) -> None:
    """Dask would have tasks where the value is that they share; what workers have read before is read there again."""
    attempt = begin(client)
    wanted = [addresses(client)[k % 2] for k in range(tasks)]
    assert [where(attempt, tasks) for _ in range(2)] == [wanted, wanted]


def test_what_stays_nowhere_is_read_by_whoever_is_idle(client: Client) -> None:
    found = where(begin(client, scattered=True), 4, 0.3)
    assert sorted(found) == sorted(2 * addresses(client))


def test_a_single_task_does_not_wait_for_others_of_its_worker(client: Client) -> None:
    first, second = addresses(client)
    for busy, idle in ((first, second), (second, first)):
        other = client.submit(here_after, 3.0, pure=False, workers=busy)
        while not client.processing()[busy]:
            time.sleep(0.01)
        assert where(begin(client), 1) == [idle]
        other.cancel()
        client.submit(here_after, 0.0, pure=False, workers=busy).result()


def test_workers_that_have_come_since_a_sweep_began_have_their_part_of_the_next_pass(client: Client) -> None:
    attempt = begin(client)
    attempt.hands = Hands(1, slots=tuple(addresses(client)[:1]))
    assert where(attempt, 4) == 2 * addresses(client)


def test_tasks_that_wait_for_others_or_have_a_worker_are_no_roots() -> None:
    graph = Graph("roots", 1)
    logits = [graph.hold(f"logits-{k}", ("tuples", "are held, too")) for k in range(2)]
    root = graph.add("root", 0, here, graph.job, "begin", [[logits, 3]])
    graph.add("next", 0, here, graph.job, ([root], None))
    graph.add("placed", 0, here, graph.job, at="tcp://127.0.0.1:1")
    other = graph.add("root", 1, here, None)
    assert graph.roots() == [root, other]
    spread_out(graph.nodes, graph.roots())
    assert graph.roots() == []  # they are spread


def test_tasks_begin_with_the_one_whose_number_comes_last() -> None:
    """Bundles of blocks count on it: shorter ones come first, so that they are run last."""
    ORDER.clear()
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        graph = Graph("order", None)
        numbers = [0, 7, 64, 128, 1000, 10176]
        keys = [graph.add("note", number, note, number) for number in numbers]
        assert Executor(client).run(graph.nodes, keys) == numbers
    assert sorted(numbers, reverse=True) == ORDER


def test_there_are_as_many_slots_as_threads(client: Client) -> None:
    hands = Executor(client).hands()
    assert hands.slots == tuple(addresses(client))
    assert hands.threads == 2
    assert hands.crowded


def test_no_workers_are_wished_for_on_threads() -> None:
    graph = Graph("threads", 1)
    keys = [graph.add("sum", k, max, k, 0) for k in range(3)]
    assert Executor(threads=1).run(graph.nodes, keys, workers=graph.workers) == [0, 1, 2]
    assert Executor(threads=1).hands().slots == ()
