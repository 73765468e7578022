-- What to ask of a dataset, the folder of tables that "mio2trace batch" or "-o out.parquet" writes. Each query runs in DuckDB
-- over the views runs, iterations, kernels, copies, operations, layers, problems, findings (docs/schema.md) and
-- journal (what was done, and what failed): "mio2trace query ds/ NAME" runs one.

-- query: runs
-- Runs: iterations, kernel time of a steady one, its share of searches, the slowest problem.
with first as (
  select run, rank, max(percent_of_kernel_time) as share,
    first(problem order by kernel_ns desc) filter (kernel_ns is not null) as problem
  from problems group by run, rank)
select runs.run, runs.rank, version, device, iterations, round(kernel_ns / 1e6, 3) as kernel_ms, kernels,
  round(100.0 * find_ns / nullif(whole_ns, 0), 1) as find_percent, first.problem as slowest_problem,
  round(share, 1) as percent_of_kernel_time
from runs left join first on first.run = runs.run and first.rank is not distinct from runs.rank
where state is distinct from 'failed' order by runs.run, runs.rank;

-- query: slowest problems
-- Problems by their kernel time in a steady iteration, over all runs: median, least, most, in which run that is, and its command.
select problem, count(distinct run) as runs, round(median(kernel_ns) / 1e6, 3) as kernel_ms, round(min(kernel_ns) / 1e6, 3) as least_ms,
  round(max(kernel_ns) / 1e6, 3) as most_ms, first(run order by kernel_ns desc, run) as slowest_run,
  round(median(percent_of_kernel_time), 1) as percent_of_kernel_time, round(median(calls), 2) as calls, round(median(gflops), 3) as gflops,
  string_agg(distinct solver, ', ' order by solver) as solvers,
  first(command order by kernel_ns desc, run, command) filter (command is not null) as command
from problems where kernel_ns > 0 group by problem order by median(kernel_ns) * count(*) desc, problem;

-- query: regressions
-- Problems that a version computes slower than the version before it: medians over runs, what that costs an iteration; clear where three quarters of its runs are slower than three quarters of those before, with as many calls (else it is another net); with fewer than 12 runs of either also by more than 5 % (10 % with 3 or 4), null with fewer than 3.
with of_version as (
  select problem, device, version, count(distinct runs.run) as runs, median(problems.kernel_ns) as ns, median(calls) as calls,
    quantile_cont(problems.kernel_ns, 0.25) as low, quantile_cont(problems.kernel_ns, 0.75) as high, string_agg(distinct solver, ', ' order by solver) as solvers
  from problems join runs on runs.run = problems.run and runs.rank is not distinct from problems.rank
  where problems.kernel_ns > 0 and version is not null group by problem, device, version),
  ordered as (
    select *, lag(version) over earlier as before, lag(ns) over earlier as before_ns, lag(high) over earlier as before_high,
      lag(solvers) over earlier as before_solvers, lag(calls) over earlier as before_calls, lag(runs) over earlier as before_runs
    from of_version window earlier as (
      partition by problem, device
      order by list_transform(regexp_extract_all(version, '[0-9]+'), lambda part: try_cast(part as bigint)), version))
select problem, before, version, round(before_ns / 1e6, 3) as before_ms, round(ns / 1e6, 3) as kernel_ms,
  round(ns / before_ns, 3) as ratio, round((ns - before_ns) / 1e6, 3) as costs_ms,
  case when least(runs, before_runs) >= 3 then low > before_high and calls is not distinct from before_calls and ns > before_ns *
    case when least(runs, before_runs) < 5 then 1.1 when least(runs, before_runs) < 12 then 1.05 else 1 end end as clear,
  before_runs || ' / ' || runs as runs, before_solvers, solvers, device
from ordered where ns > 1.02 * before_ns order by ns - before_ns desc, problem, version;

-- query: heat map
-- Iterations of each run and rank: their median, the slowest, and how long each took between the fastest (▁) and the slowest (█) steady one of the run's ranks.
with timed as (
  select run, rank, iteration, steady, coalesce(step_ns, kernel_ns) as ns from iterations where kernels > 0),
  scale as (
    select *, min(ns) filter (steady) over (partition by run) as least, max(ns) filter (steady) over (partition by run) as most
    from timed),
  placed as (
    select *, least(greatest((ns - least) / greatest(most - least, 1), 0), 1) as place from scale)
select run, rank, string_agg('▁▂▃▄▅▆▇█'[1 + cast(7 * coalesce(place, 0) as integer)], '' order by iteration) as heat,
  round(median(ns) filter (steady) / 1e6, 3) as median_ms, count(*) as iterations,
  arg_max(iteration, ns) as slowest, round(max(ns) / 1e6, 3) as slowest_ms
from placed group by run, rank order by run, rank;

-- query: outlier runs
-- Runs whose steady iteration takes longer or shorter than that of the others of the version with the same problems on the same device: by how many deviations (1.48 times the median one).
with alike as (
  select run, rank, md5(string_agg(distinct problem, '|' order by problem)) as work from problems group by run, rank),
  grouped as (
    select runs.run, runs.rank, version, device, kernel_ns as ns,
      coalesce(work, md5(concat_ws('|', kernels, layers, steady_iterations))) as work
    from runs left join alike on alike.run = runs.run and alike.rank is not distinct from runs.rank
    where kernel_ns is not null),
  centred as (
    select *, median(ns) over same as usual, count(*) over same as others,
      count(distinct run) over same as runs from grouped
    window same as (partition by work, device, version)),
  spread as (
    select *, 1.4826 * median(abs(ns - usual)) over (partition by work, device, version) as deviation from centred)
select run, rank, version, round(ns / 1e6, 3) as kernel_ms, round(usual / 1e6, 3) as usual_ms, round(ns / usual, 3) as ratio,
  round((ns - usual) / greatest(deviation, 0.002 * usual, 1), 1) as deviations, runs, device
from spread where others >= 4 and abs(ns - usual) > (3.5 + 14.0 / others) * greatest(deviation, 0.002 * usual, 1)
order by abs(ns - usual) / usual desc, run, rank;

-- query: failures
-- Runs that could not be used, and why.
with last as (select * from journal qualify row_number() over (partition by run order by ended desc) = 1)
select run, coalesce(bad.error, last.error) as error, round(seconds, 1) as seconds, bad.version
from (select * from runs where state = 'failed') as bad
full join (select * from last where state = 'failed') as last using (run) order by run;

-- query: what is odd
-- Findings by rule: in how many runs, how severe at worst, time at stake, the worst run and what to try there.
select id, min_by(severity, list_position(['high', 'medium', 'low', 'info'], severity)) as severity,
  count(distinct run) as runs, round(sum(ns) / 1e6, 3) as ms, round(median(share) * 100, 1) as median_percent_at_stake,
  first(run order by rank, ns desc nulls last, run) as worst_run,
  round(first(ns order by rank, ns desc nulls last, run) / 1e6, 3) as worst_ms,
  first("try" order by rank, ns desc nulls last, run) as advice
from (select * exclude (rank), list_position(['high', 'medium', 'low', 'info'], severity) as rank from findings)
group by id
order by min(list_position(['high', 'medium', 'low', 'info'], severity)), sum(ns) desc nulls last, id;

-- query: kernels of runs
-- Kernels by name, by their time in all runs, whole.
select name as kernel, count(*) as calls, count(distinct run) as runs, round(sum(kernel_ns) / 1e6, 3) as kernel_ms,
  round(100.0 * sum(kernel_ns) / sum(sum(kernel_ns)) over (), 1) as percent_of_kernel_time,
  round(avg(kernel_ns) / 1e3, 3) as mean_us, round(max(kernel_ns) / 1e3, 3) as longest_us
from kernels group by name order by sum(kernel_ns) desc, name;

-- query: layers of runs
-- Layers by the median over runs of their median kernel time; printed times where there is no profile.
with of_run as (
  select run, rank, layer, direction, median(coalesce(kernel_ns, printed_ns)) as ns, median(gflops) as gflops
  from layers where iteration is null or iteration > 0 group by run, rank, layer, direction)
select layer, direction, count(distinct run) as runs, round(median(ns) / 1e6, 3) as kernel_ms, round(min(ns) / 1e6, 3) as least_ms,
  round(max(ns) / 1e6, 3) as most_ms, first(run order by ns desc, run) as slowest_run, round(median(gflops), 3) as gflops
from of_run where ns is not null group by layer, direction order by median(ns) * count(*) desc, layer, direction;

-- query: stragglers
-- Ranks of jobs at their collectives, those first that the others wait for longest: how often each came last, by what.
select run, rank, collectives, round(transfer_ns / 1e6, 3) as transfer_ms, round(wait_ns / 1e6, 3) as wait_ms,
  times_arrived_last, round(late_ns / 1e6, 3) as late_ms, made_late_by, round(made_late_ns / 1e6, 3) as made_late_ms
from ranks order by late_ns desc, run, rank;
