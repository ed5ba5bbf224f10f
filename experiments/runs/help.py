"""What ``--help`` of each command says: its own options, then those of a scenario where it takes one.

Commands answer it before they import what takes time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

SCENARIO = """\
what runs (what there is: python -m experiments.list models|clusters|schedulers|...):
  model=resnet50 model.batch=8         cluster=cpu2_gpu1 cluster.devices.gpu.count=2
  scheduler=heft                       scheduler.options.insertion=false
  partition=cpu_gpu                    where the model's graph is cut
  workload=poisson workload.rate=20/s  jobs that arrive over time
  model=from_graph model.name=net model.graph=net.onnx    a model from a file
  instance=topcuoglu                   a bare instance or a trace instead of a model and a cluster
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
"""


class Help(NamedTuple):
    """The help of one command.

    Attributes:
        usage: what stands behind its name.
        about: one sentence.
        text: options and examples of this command alone.
        scenario: whether it takes a scenario besides.
    """

    usage: str
    about: str
    text: str
    scenario: bool


COMMANDS: dict[str, Help] = {
    "simulate": Help(
        "[key=value ...]",
        "Simulate one run: makespan, interval, Gantt and trace. With -m several runs, one after the other.",
        """\
options of this command:
  explain=true                         each decision of the scheduler
  save_instance=FILE                   write a drawn graph with its times, as instance=FILE reads it
  export=FILE.et                       what ran, for other tools: .et (Chakra), .json (WfFormat)
  keep=figures                         requests are counted and forgotten: runs of any length, no
                                       trace
  --cfg job                            all values as they stand; nothing is done
""",
        True,
    ),
    "describe": Help(
        "[key=value ...]",
        "What a model is made of, where its time goes on each device, and what a schedule can gain.",
        """\
options of this command:
  features=FILE.parquet                keep the features of all operators
  profile=FILE.parquet                 keep the layers by closed forms (or FILE.csv)
  advise=true                          say by features alone where each phase should run
  --cfg job                            all values as they stand; nothing is done
""",
        True,
    ),
    "sweep": Help(
        "[key=value,value ...]",
        "Simulate every combination of several values and compare them.",
        """\
examples:
  scheduler=heft,donf model=resnet50,bert_base 'seed.workload=range(0,30)'
  experiment=demo                    a preset of conf/experiment
  experiment=demo scheduler=mine,heft --config-dir ~/mine
  name=paper1                        the folder in outputs/sweeps; the same name goes on
  'exclude=[{scheduler:fcfs,model:gpt2}]'  combinations to leave out
  dry_run=true                       cells, minutes, megabytes; nothing is written
  rerun=failed|all|none              stale cells, whose code or profiles changed, are simulated
                                     again; with failed those too, with all every cell
  workers=4 traces=true baseline=heft
  workers=ray://host:port            or dask://host:port, slurm:partition, submitit:local
  style=column                       figures 3.33 inches wide (page: 7 inches)
""",
        True,
    ),
    "compare": Help(
        "FOLDER [FOLDER] [key=value ...]",
        "Compare the schedulers of a sweep, or two runs.",
        """\
examples:
  outputs/sweeps/paper1                      table and report of a sweep
  outputs/sweeps/paper1 baseline=heft        relative to heft
  outputs/sweeps/paper1 map=ccr,heterogeneity   who wins where, over two factors that vary
  outputs/sweeps/paper1 unit=seed            tests pair single seeds, not models (unit=contest)
  outputs/sweeps/paper1 error=sigma          robustness against a factor of your own
  outputs/sweeps/paper1 style=column         figures 3.33 inches wide (page: 7 inches)
  outputs/runs/A outputs/runs/B              two runs: config, metrics, operators that differ
""",
        False,
    ),
    "calibrate": Help(
        "[key=value ...]",
        "Measure a device of this machine and fit its profile. What each option means: docs/calibration.md",
        """\
options of this command:
  device=cpu                           or cuda:0
  calibration=quick                    a preset of conf/calibration
  budget=15min                         of measuring; interruptible, goes on with out=
  out=FOLDER                           begin or go on there
  step=measure                         or fit, all; plan with settle=
  name=mine                            of the profile
  model=googlenet batches=[1,4]        measure all operators of this model, too
  operators=FILE                       instead of the project's set; training: those of training
                                       steps
  operators_at_most=200 rounds=10      how much; the budget decides unless given
  only=true                            of a folder that was begun: these operators alone
  training=true                        operators of training steps besides
  dtypes=[float32,bfloat16]            element types; tf32 on CUDA
  cores=[2,3] threads=1                where
  states=graph,warm cache=graph        states of the cache that are measured, and the one that is
                                       priced
  repeat_kernel=3                      an honest device of a third the speed
  statistic=p10 models=[boosted]       of an operator's samples; cost models to fit
  start=tesla-t4                       a similar device's profile to start from: a minute goes a
                                       long way
  base=PROFILE                         with step=fit: fit its measurements again
  active=true                          measure next where the cost model is least sure
  settle=FOLDER pair=heft,donf         measure what tells two schedulers of a sweep apart
  contest=LABEL trust=true             which contest of it; run code that the folder names
  seed=0                               of shuffles, data and trees
  --cfg job                            all values as they stand; nothing is done
""",
        False,
    ),
    "validate": Help(
        "[key=value,value ...]",
        "Run models under schedulers on this machine and hold the simulation against it.",
        """\
examples:
  model=gpt2,bert_base scheduler=heft,fcfs
  repeats=50 held_out=true           also from profiles fitted without the model's own operators
  workload=single,concurrent         one job, and four at once
  experiment=validation budget=60min the preset of the README; goes on where it was stopped
  sweep=paper1 top=3                 the three best schedulers of every setting of a sweep
  name=mine                          the folder in outputs/validation; the same name goes on
  cores=[2,3]                        the cores of the workers
  recheck=docs/validation            a saved one worked out again, without hardware
  seal=march model=gpt2              write the prediction down first; then check=march
  table=docs/validation.md           the table of all sealed predictions
""",
        True,
    ),
    "validate_serving": Help(
        "[key=value,value ...]",
        "Serve requests on this machine and hold the simulation of the same requests against it.",
        """\
examples:
  scheduler=fcfs,task_groups loads=[0.5,0.9] seconds=10
  workload.mix='resnet18:1 googlenet:2' name=two
  workload=trace workload.file=requests.csv        the requests of a file, at these loads
  repeats=5 again=true                             more runs of every case; measure everything again
  cores=[2,3]                                      the cores of the workers
""",
        True,
    ),
    "serving": Help(
        "FOLDER [key=value ...]",
        "Delays, goodput and success of a sweep of serving runs against the offered load.",
        """\
examples:
  outputs/sweeps/NAME                        against what the sweep varies beside schedulers and
                                             seeds
  outputs/sweeps/NAME x=workload.rate        against a key of the configuration
  outputs/sweeps/NAME slo=200ms              the objective's line, and up to which load p99 meets it
  outputs/sweeps/NAME baseline=fcfs          what the others are compared with
  outputs/sweeps/NAME schedulers=fcfs,edf    these alone
  outputs/sweeps/NAME style=column           figures 3.33 inches wide (page: 7 inches)
""",
        False,
    ),
    "devices": Help(
        "[key=value ...]",
        "Which device: a model alone on each of several devices, with intervals, energy and cost.",
        """\
options of this command:
  model=googlenet,resnet50           what runs; values of theirs as elsewhere, like
                                     model.dtype=float16
  profile=tesla-t4,nvidia-l4         the devices; all that have the model's element type unless
                                     given
  batch=1,16                         sizes of a batch; the model's own unless given
  'price={tesla-t4: 0.35/h}'         of an hour; as the clusters of conf/cluster say, if they
                                     agree, unless given
  'power={tesla-t4: 70 W}'           the board's by its data sheet unless given
  cost_model=ensemble                which fit of the profiles gives the times
  simulation.draws=200 seed.noise=0  of the intervals
  output_dir=outputs                 fig_devices with its CSV lies in devices/ there
examples:
  model=googlenet profile=tesla-t4,amd-epyc-25-17-1core batch=1,16
  model=bert_base model.dtype=float16
what there is: python -m experiments.list profiles|models
""",
        False,
    ),
    "size": Help(
        "[key=value ...]",
        "How many devices, and which: the cheapest fleet that meets an objective.",
        """\
options of this command:
  slo.p99=100ms                        what must hold: also slo.mean, slo.p50, slo.p95,
                                       slo.success=0.99
  'vary={t4:0..3,cpu:1..8}'            how many of each entry of the cluster's devices are tried
  minimise=cost                        or devices, power: what the best fleet has least of
  seeds=5                              of arrivals, which every fleet meets
  more=8                               dearer fleets to try, for the frontier
  --cfg job                            all values as they stand; nothing is done
""",
        True,
    ),
    "flip": Help(
        "[key=value,value ...]",
        "By how much a link, a device or a predicted time must change before another scheduler wins.",
        """\
options of this command:
  limit=8                              the largest factor that is tried, up and down
  step=1.19                            the factor between two that are tried
  precision=0.005                      relative, of the factor at which the winner changes
  least_share=0.01                     kinds of operators that take less of the time are left out
examples:
  model=inception_v3 cluster=cpu2_gpu1 scheduler=heft,donf,fcfs
  instance=topcuoglu scheduler=heft,donf limit=4
""",
        True,
    ),
    "adversary": Help(
        "[key=value,value ...]",
        "Search for the instance on which one scheduler loses most to another.",
        """\
examples:
  scheduler=heft,donf family=layered family.n=8 family.devices=3
  scheduler=heft,cpop,peft instance=topcuoglu iterations=5000
  scheduler=heft,dynamic_heft family=daggen family.n=12 \\
      simulation.contention=fifo graph=false restarts=10
""",
        True,
    ),
    "early_exit": Help(
        "[key=value ...]",
        "Where to split a multi-exit network and let samples leave, over terminal, edge and cloud.",
        """\
options of this command:
  'bandwidths=[4g,100 Mbit/s]'         of the link that varies
  link=wifi                            which of the cluster's links that is
  'tiers=[terminal,edge,cloud]'        their memory spaces
  table=FILE way=joint                 accuracies of exits; how they were trained: separate, joint,
                                       joint_depth
  threshold=0.8                        of confidence; searched unless given
  weights.latency=1                    of the cost, see docs/early_exit.md
  search=greedy                        whose find is simulated: greedy, one_start, exhaustive,
                                       joint, ...
  report='100 kB'                      what the terminal sends for every sample
  requests=400                         simulated alone, for each bandwidth
  --cfg job                            all values as they stand; nothing is done
""",
        True,
    ),
    "train_predictor": Help(
        "[key=value ...]",
        "Train a predictor of load and hold it against simpler ones on time that it has not seen.",
        """\
options of this command:
  file=mine.safetensors                where the predictor goes
  loads=recorded.csv                   loads, instead of simulating them
  record=loads.csv                     keep the loads that were simulated
  'rates=[20/s,40/s]' runs=4           what is simulated, and how often each
  held_out=0.25                        share of the time that the errors are of
  hidden=32 epochs=60                  units, and how often all windows are seen at most
  --cfg job                            all values as they stand; nothing is done
""",
        True,
    ),
    "communication": Help(
        "FOLDER [baseline=NAME]",
        "What a sweep's schedulers move and how long they take, against one of them.",
        """\

""",
        False,
    ),
    "train_exits": Help(
        "[key=value ...]",
        "Exit tables of a multi-exit network trained on scikit-learn's digits in three ways.",
        """\
options of this command:
  seeds=5 epochs=30 head_epochs=30     networks, and how long they and their heads are trained
  table=FILE weights=FOLDER            where the table and the networks go
  output_dir=outputs
""",
        False,
    ),
    "shop_policy": Help(
        "train|evaluate [key=value ...]",
        "Train a scheduler of staged jobs by policy gradient, or evaluate one on held-out jobs.",
        """\
options of train:
  seeds=3 iterations=400               how much is trained
  objective=job_time                   or makespan
options of evaluate:
  sequences=50                         of jobs that no training has
of both:
  file=mine.safetensors output_dir=outputs
""",
        False,
    ),
    "list": Help(
        "models|clusters|families|schedulers|... [--wide]",
        "What there is, one line each, in groups.",
        """\
what: models, clusters, families, schedulers, partitions, workloads, cost_models, experiments,
  profiles, instances
options of this command:
  --wide                               one line each, with sources
  --config-dir ~/mine                  your own folder of configs and classes
""",
        False,
    ),
}
"""By name, the most used first."""


def answered(command: str, words: Sequence[str] | None = None) -> bool:
    """Print the help of a command where its command line asks for it.

    Args:
        command: ``simulate``.
        words: of the command line; None for the process's own.
    """
    if not {"-h", "--help"} & {*(sys.argv[1:] if words is None else words)}:
        return False
    said = COMMANDS[command]
    parts = [f"usage: python -m experiments.{command} {said.usage}\n", f"{said.about}\n", said.text]
    if said.scenario:
        parts += [SCENARIO, EVERYWHERE]
    elif command in ("calibrate", "devices"):
        parts.append(EVERYWHERE)
    print("\n".join(part for part in parts if part), end="")
    return True
