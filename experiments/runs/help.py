"""What ``--help`` of a command says: its own options, then those of a scenario where it takes one.

Known before anything is imported that takes time.
"""

from __future__ import annotations

from collections.abc import Sequence

SCENARIO = """\
what runs (what there is: python -m experiments.list models|clusters|schedulers|...):
  model=resnet50 model.batch=8         cluster=cpu2_gpu1 cluster.devices.gpu.count=2
  scheduler=heft                       scheduler.options.insertion=false
  partition=cpu_gpu                    where the model's graph is cut
  workload=poisson workload.rate=20/s  jobs that arrive over time
  instance=topcuoglu                   a bare instance instead of a model and a cluster
  family=daggen family.n=400           a drawn graph instead of them
  experiment=NAME                      a preset: python -m experiments.list experiments
how time passes:
  simulation.movement=pull simulation.contention=fair simulation.noise=measured
  simulation.draws=0                   draws behind the 95% interval
  cost_model=ensemble strict=true      which fit gives the times; refuse extrapolated ones
  seed.workload=1 seed.noise=1 seed.search=1
"""
EVERYWHERE = """\
everywhere:
  output_dir=elsewhere
  --config-dir ~/mine                  your own folder of configs and classes
  --cfg job                            all values as they stand
"""


def asks(words: Sequence[str]) -> bool:
    """Whether a command line asks for help."""
    return bool({"-h", "--help"} & {*words})


def help_text(module: str, description: str, options: str, scenario: bool = True) -> str:
    """The text of ``--help`` of a command whose values are a configuration.

    Args:
        module: what stands behind ``python -m``.
        description: one sentence.
        options: of the command alone, lines of ``  key=value   what it does``.
        scenario: whether it takes a scenario besides.
    """
    own = f"options of this command:\n{options.rstrip()}\n" if options else ""
    parts = [f"usage: python -m {module} [key=value ...]\n", f"{description}\n", own]
    parts += [SCENARIO] if scenario else []
    return "\n".join(part for part in [*parts, EVERYWHERE] if part)
