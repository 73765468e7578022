-- What to ask of a trace that mio2trace wrote, in either form. "mio2trace query out.json NAME" runs one;
-- on the viewer's query page run the part before the first "query:" once, then any of them.

-- The value of an argument: Chrome JSON keeps it as args.x, the native form as debug.x.
create or replace perfetto macro arg(key Expr) returns Expr as
coalesce(extract_arg(arg_set_id, 'args.' || $key), extract_arg(arg_set_id, 'debug.' || $key));

-- Kernels and copies of the device, with the layer and the operation they belong to. A slice has a short name, its
-- argument full_name the whole one; process is '' where the trace shows one run of one process.
create or replace perfetto view commands as
select id, track_id, ts, dur, category,
  coalesce(arg!('full_name'), name) as name,
  ifnull(arg!('process'), '') as process,
  arg!('call_index') as call_index, arg!('layer') as layer, arg!('layer_index') as layer_index,
  arg!('direction') as direction, arg!('iteration') as iteration, arg!('phase') as phase,
  arg!('operation') as operation, arg!('layer_by') as layer_by, arg!('operation_by') as operation_by,
  arg!('sure') as sure, arg!('role') as role, arg!('algorithm') as algorithm,
  arg!('gws') as gws, arg!('lws') as lws, arg!('queued_ns') as queued_ns, arg!('submit_ns') as submit_ns,
  arg!('gemm.M') as M, arg!('gemm.N') as N, arg!('gemm.K') as K, coalesce(arg!('gemm.batch'), 1) as batch,
  arg!('gemm_ns') as gemm_ns,
  arg!('flop') as flop, arg!('bytes') as bytes, arg!('copy_direction') as copy_direction
from slice where category in ('kernel', 'copy');

create or replace perfetto view kernels as
select * from commands where category = 'kernel';

-- Layers as drawn: side is device where the slice spans kernels, host or log otherwise.
create or replace perfetto view layers as
select id, ts, dur, name, ifnull(arg!('process'), '') as process, arg!('layer_index') as layer_index, arg!('direction') as direction,
  arg!('iteration') as iteration, arg!('kernels') as kernels, arg!('kernel_ns') as kernel_ns,
  arg!('printed_ns') as printed_ns, arg!('flop') as flop, arg!('output') as output,
  case when arg!('kernel_ns') is not null then 'device' else 'host' end as side
from slice where category = 'layer';

create or replace perfetto view passes as
select id, ts, dur, name, ifnull(arg!('process'), '') as process,
  arg!('direction') as direction, arg!('iteration') as iteration, arg!('steady') as steady,
  arg!('kernels') as kernels, arg!('kernel_ns') as kernel_ns, arg!('flop') as flop,
  case when arg!('kernel_ns') is not null then 'device' else 'host' end as side
from slice where category = 'pass';

create or replace perfetto view operations as
select id, ts, dur, name, ifnull(arg!('process'), '') as process, arg!('operation') as operation, arg!('primitive') as primitive,
  arg!('direction') as direction, arg!('phase') as phase, arg!('algorithm') as algorithm,
  arg!('solver') as solver, arg!('layer') as layer, arg!('kernels') as kernels, arg!('kernel_ns') as kernel_ns,
  arg!('flop') as flop, arg!('command') as command, arg!('goes_on') as goes_on, arg!('sure') as sure
from slice where category = 'operation';

-- Iterations that count, of each process: warm and whole; the warm-up where nothing else ran.
create or replace perfetto view steady_iterations as
select distinct process, iteration from passes
where side = 'device' and kernels > 0 and iteration is not null
  and (name not glob 'warm-up*' or process not in (
    select process from passes
    where side = 'device' and kernels > 0 and iteration is not null and name not glob 'warm-up*'))
  and (process, iteration) not in (select process, iteration from passes where steady is not null and iteration is not null);

-- Kernels and copies of these iterations, or of the whole run where none is known; without searches and set-up.
create or replace perfetto view steady_commands as
select * from commands
where phase is null
  and (operation is null or (process, operation) not in (
    select process, operation from operations where phase = 'find' and operation is not null))
  and ((process, iteration) in (select process, iteration from steady_iterations)
    or process not in (select process from steady_iterations));

create or replace perfetto view steady_kernels as
select * from steady_commands where category = 'kernel';

-- How many they are, and the time of their kernels: what costs are divided by, and shares are of.
create or replace perfetto view steady_total as
select process, sum(dur) as ns, ifnull(iterations, 1) as iterations
from steady_kernels left join (select process, count(*) as iterations from steady_iterations group by process)
  using (process)
group by process;

-- query: slowest layers
-- Layers by their kernel time in a steady iteration, searches left out; printed times where there is no profile.
with
  spans as (
    select process, layer_index, name, direction, sum(dur) as dur, sum(flop) as flop, count(flop) = count(nullif(kernels, 0)) as whole
    from layers
    where side = 'device'
      and ((process, iteration) in (select process, iteration from steady_iterations)
        or process not in (select process from steady_iterations))
    group by process, layer_index, name, direction),
  ranked as (
    select process, layer_index, layer, direction, sum(dur) as ns, count(*) as kernels, min(ts) as begin
    from steady_kernels where layer is not null group by process, layer_index, layer, direction)
select process, layer, direction, iterations, kernel_ms, percent_of_kernel_time, cumulative_percent, kernels, span_ms, gflops,
  printed_ms
from (
  select nullif(ranked.process, '') as process, layer, ranked.direction, iterations,
    round(ranked.ns / 1e6 / iterations, 3) as kernel_ms, round(100.0 * ranked.ns / total.ns, 1) as percent_of_kernel_time,
    round(100.0 * sum(ranked.ns) over (partition by ranked.process order by ranked.ns desc, begin) / total.ns, 1) as cumulative_percent,
    round(1.0 * kernels / iterations, 1) as kernels, round(spans.dur / 1e6 / iterations, 3) as span_ms,
    case when whole then round(1.0 * nullif(flop, 0) / ranked.ns, 3) end as gflops, null as printed_ms,
    ranked.ns, begin
  from ranked join steady_total as total on total.process = ranked.process left join spans
    on spans.process = ranked.process and spans.layer_index = ranked.layer_index and spans.name = ranked.layer
      and spans.direction is ranked.direction
  union all
  select null, name, direction, count(*), null, null, null, null, null, null, round(avg(coalesce(printed_ns, dur)) / 1e6, 3),
    avg(coalesce(printed_ns, dur)), min(ts)
  from layers where not exists (select 1 from kernels) and (iteration is null or iteration > 0)
  group by layer_index, name, direction
)
order by length(process), process, ns desc, begin;

-- query: slowest kernels
-- Kernels by name, by their time in a steady iteration, and how often each is called in one.
select nullif(process, '') as process, name as kernel, round(1.0 * count(*) / iterations, 2) as calls,
  round(sum(dur) / 1e6 / iterations, 3) as kernel_ms, round(100.0 * sum(dur) / ns, 1) as percent_of_kernel_time,
  round(avg(dur) / 1e3, 3) as mean_us, round(max(dur) / 1e3, 3) as longest_us, count(distinct layer) as layers
from steady_kernels join steady_total using (process)
group by process, name order by length(process), process, sum(dur) desc, min(ts);

-- query: slowest operations
-- Operations of each layer by their kernel time in a steady iteration, searches left out.
with
  each_call as (
    select process, operation, name, group_concat(distinct solver) as solvers, min(command) as command,
      case when sum(kernels) > 0 then ifnull(max(flop), -1) else 0 end as flop  -- -1: of unknown size
    from operations where ifnull(phase, 'run') <> 'find' group by process, operation, name),
  begun as (
    select process, operation, min(ts) as first from commands where operation is not null group by process, operation),
  ran as (
    select process, operation, layer, sum(iif(category = 'kernel', dur, 0)) as ns, sum(category = 'kernel') as kernels,
      min(ts) as begin
    from steady_commands where operation is not null group by process, operation)
select nullif(process, '') as process, name as operation, layer, round(1.0 * sum(begin = first) / iterations, 2) as calls,
  round(sum(ran.ns) / 1e6 / iterations, 3) as kernel_ms, round(100.0 * sum(ran.ns) / total.ns, 1) as percent_of_kernel_time,
  round(1.0 * sum(kernels) / iterations, 1) as kernels, max(solvers) as solver,
  case when min(iif(begin = first, flop, 0)) >= 0
    then round(1.0 * nullif(sum(iif(begin = first, flop, 0)), 0) / sum(ran.ns), 3) end as gflops, min(command) as command
from each_call join ran using (process, operation) join begun using (process, operation)
  join steady_total as total using (process)
group by process, name, layer having sum(kernels) > 0 order by length(process), process, sum(ran.ns) desc, min(begin);

-- query: helpers by cost
-- Kernels that only prepare or finish the work of another (im2col, transposes, padding, fills, casts), by their time in a steady iteration.
select nullif(process, '') as process, role, name as kernel, round(1.0 * count(*) / iterations, 2) as calls,
  round(sum(dur) / 1e6 / iterations, 3) as kernel_ms, round(100.0 * sum(dur) / ns, 1) as percent_of_kernel_time,
  count(distinct layer) as layers
from steady_kernels join steady_total using (process)
where role not in ('main', 'bias', 'collective') group by process, role, name
order by length(process), process, sum(dur) desc, name;

-- query: unattributed time
-- Kernels and copies that no layer could be found for, by name.
select name, category, phase, count(*) as calls, round(sum(dur) / 1e6, 3) as ms,
  round(100.0 * sum(dur) / (select sum(dur) from commands), 1) as percent_of_command_time,
  sum(operation is not null) as with_operation
from commands where layer is null group by name, category, phase order by sum(dur) desc, name;

-- query: iterations
-- Passes in order: their length, the share of it in which kernels ran, and the number of kernels.
select nullif(process, '') as process, name as pass, iteration, direction, round(dur / 1e6, 3) as ms, round(kernel_ns / 1e6, 3) as kernel_ms,
  round(100.0 * kernel_ns / dur, 1) as kernel_percent_of_span, kernels, round(1.0 * nullif(flop, 0) / kernel_ns, 3) as gflops
from passes where side = (select min(side) from passes) order by ts, length(process), process;

-- query: find and compile
-- What runs before the work: searches for the best kernel, program builds, set-up kernels.
select 'search' as what, name, count(*) as calls, round(sum(dur) / 1e6, 3) as ms
from operations where phase = 'find' group by name
union all
select 'build' as what, name, count(*) as calls, round(sum(dur) / 1e6, 3) as ms
from slice where category = 'api' and name glob 'cl*Program*' group by name
union all
select 'set-up' as what, name, count(*) as calls, round(sum(dur) / 1e6, 3) as ms
from commands where phase in ('setup', 'find') group by name
order by ms desc, name;

-- query: gemms
-- Matrix products whose kernels show the sizes (OpenCL; "slowest operations" has the others), by time in a steady iteration.
with products as (
  select *, coalesce(gemm_ns, dur) as took from steady_kernels where M is not null)
select nullif(process, '') as process, M, N, K, batch, name as kernel, round(1.0 * count(*) / iterations, 2) as calls,
  round(sum(took) / 1e6 / iterations, 3) as kernel_ms, round(1.0 * sum(flop) / sum(took), 3) as gflops,
  group_concat(distinct layer) as layers
from products join steady_total using (process)
group by process, M, N, K, batch, name
order by length(process), process, sum(took) desc, M, N, K;

-- query: copies
-- Reads and writes of buffers: bytes, and the rate of the copies whose bytes are known.
select copy_direction as direction, layer, count(*) as calls, sum(bytes) as bytes, round(sum(dur) / 1e6, 3) as ms,
  round(1.0 * sum(bytes) / sum(case when bytes is not null then dur end), 3) as gb_per_s
from commands where category = 'copy' group by copy_direction, layer order by sum(dur) desc, layer;

-- query: evidence
-- What the links of kernels and copies rest on, and how much time lies on each.
select ifnull(layer_by, 'no layer') as layer_by, ifnull(operation_by, 'no operation') as operation_by,
  count(*) as calls, sum(sure is not null) as not_sure, round(sum(dur) / 1e6, 3) as ms
from commands group by 1, 2 order by sum(dur) desc;

-- query: doubts
-- Kernels and copies whose layer or operation is not sure, by what they were linked to.
select name as kernel, layer, direction, layer_by, operation_by, count(*) as calls, round(sum(dur) / 1e6, 3) as ms
from commands where sure is not null group by name, layer, direction, layer_by, operation_by order by sum(dur) desc, name;

-- query: longest gaps
-- The device's longest pauses between commands of one track, and what came after.
select round(gap / 1e3, 3) as gap_us, round((ts - gap) / 1e6, 3) as from_ms, name as before_command, layer, iteration
from (
  select *, ts - max(ts + dur) over (partition by track_id order by ts rows between unbounded preceding and 1 preceding) as gap
  from commands)
where gap > 0 order by gap desc, ts limit 30;

-- query: longest waits
-- Commands by the time from being queued to their start.
select round((ts - queued_ns) / 1e3, 3) as wait_us, round(dur / 1e3, 3) as run_us, name, layer, iteration, call_index
from commands where queued_ns is not null order by ts - queued_ns desc, ts limit 30;

-- query: launch bound
-- Layers with much time between their kernels, whatever the cause (the finding "idle" has the causes). Sums per steady iteration.
select nullif(process, '') as process, name as layer, direction, round(sum(dur) / 1e6 / iterations, 3) as span_ms,
  round(sum(kernel_ns) / 1e6 / iterations, 3) as kernel_ms,
  round(sum(dur - kernel_ns) / 1e6 / iterations, 3) as idle_ms,
  round(100.0 * sum(kernel_ns) / sum(dur), 1) as kernel_percent_of_span
from layers join steady_total using (process)
where kernel_ns is not null
  and ((process, iteration) in (select process, iteration from steady_iterations)
    or process not in (select process from steady_iterations))
group by process, layer_index, name, direction
order by length(process), process, sum(dur - kernel_ns) desc, min(ts);
