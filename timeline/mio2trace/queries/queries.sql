-- What to ask of a trace that mio2trace wrote, in either form. "mio2trace query out.json NAME" runs one;
-- on the viewer's query page run the part before the first "query:" once, then any of them.

-- The value of an argument: Chrome JSON keeps it as args.x, the native form as debug.x.
create or replace perfetto macro arg(key Expr) returns Expr as
coalesce(extract_arg(arg_set_id, 'args.' || $key), extract_arg(arg_set_id, 'debug.' || $key));

-- Kernels and copies of the device, with the layer and the operation they belong to.
create or replace perfetto view commands as
select id, track_id, ts, dur, name, category,
  arg!('call_index') as call_index, arg!('layer') as layer, arg!('layer_index') as layer_index,
  arg!('direction') as direction, arg!('iteration') as iteration, arg!('phase') as phase,
  arg!('operation') as operation, arg!('layer_by') as layer_by, arg!('operation_by') as operation_by,
  arg!('sure') as sure, arg!('role') as role, arg!('algorithm') as algorithm,
  arg!('gws') as gws, arg!('lws') as lws, arg!('queued_ns') as queued_ns, arg!('submit_ns') as submit_ns,
  arg!('gemm.M') as M, arg!('gemm.N') as N, arg!('gemm.K') as K, coalesce(arg!('gemm.batch'), 1) as batch,
  arg!('flop') as flop, arg!('bytes') as bytes, arg!('copy_direction') as copy_direction
from slice where category in ('kernel', 'copy');

create or replace perfetto view kernels as
select * from commands where category = 'kernel';

-- Layers as drawn: side is device where the slice spans kernels, host or log otherwise.
create or replace perfetto view layers as
select id, ts, dur, name, arg!('layer_index') as layer_index, arg!('direction') as direction,
  arg!('iteration') as iteration, arg!('kernels') as kernels, arg!('kernel_ns') as kernel_ns,
  arg!('printed_ns') as printed_ns, arg!('flop') as flop, arg!('output') as output,
  case when arg!('kernel_ns') is not null then 'device' else 'host' end as side
from slice where category = 'layer';

create or replace perfetto view passes as
select id, ts, dur, name, arg!('direction') as direction, arg!('iteration') as iteration,
  arg!('kernels') as kernels, arg!('kernel_ns') as kernel_ns, arg!('flop') as flop,
  case when arg!('kernel_ns') is not null then 'device' else 'host' end as side
from slice where category = 'pass';

create or replace perfetto view operations as
select id, ts, dur, name, arg!('operation') as operation, arg!('primitive') as primitive,
  arg!('direction') as direction, arg!('phase') as phase, arg!('algorithm') as algorithm,
  arg!('solver') as solver, arg!('layer') as layer, arg!('kernels') as kernels, arg!('kernel_ns') as kernel_ns,
  arg!('flop') as flop, arg!('command') as command, arg!('goes_on') as goes_on
from slice where category = 'operation';

-- query: slowest layers
-- Layers by their time per iteration on the device, warm-up left out; printed times where there is no profile.
with chosen as (
  select * from layers
  where side = (select min(side) from layers) and (iteration is null or iteration > 0))
select name as layer, direction,
  count(distinct coalesce(iteration, 1)) as iterations,
  round(sum(dur) / 1e6 / count(distinct coalesce(iteration, 1)), 3) as ms,
  round(100.0 * sum(dur) / (select sum(dur) from chosen), 1) as percent,
  sum(kernels) / count(distinct coalesce(iteration, 1)) as kernels,
  round(sum(kernel_ns) / 1e6 / count(distinct coalesce(iteration, 1)), 3) as kernel_ms,
  case when count(flop) = count(*) then round(1.0 * sum(flop) / sum(kernel_ns), 3) end as gflops
from chosen group by layer_index, name, direction order by ms desc, min(ts);

-- query: slowest kernels
-- Kernels by their whole time, by name.
select name as kernel, count(*) as calls, round(sum(dur) / 1e6, 3) as ms,
  round(100.0 * sum(dur) / (select sum(dur) from kernels), 1) as percent,
  round(avg(dur) / 1e3, 3) as mean_us, round(max(dur) / 1e3, 3) as longest_us,
  count(distinct layer) as layers
from kernels group by name order by sum(dur) desc, name;

-- query: slowest operations
-- Operations that ran (no searches) by the kernel time under them, equal ones together; means are of those with kernels.
select name as operation, sum(goes_on is null) as calls, round(sum(coalesce(kernel_ns, dur)) / 1e6, 3) as ms,
  round(sum(coalesce(kernel_ns, dur)) / 1e3 / sum(goes_on is null and ifnull(kernels, 1) > 0), 3) as mean_us, sum(kernels) as kernels,
  group_concat(distinct solver) as solvers,
  round(1.0 * sum(case when kernel_ns > 0 then flop end) / sum(kernel_ns), 3) as gflops, min(command) as command
from operations where ifnull(phase, 'run') <> 'find' group by name order by sum(coalesce(kernel_ns, dur)) desc, name;

-- query: helpers by cost
-- Kernels that only prepare or finish the work of another: im2col, transposes, padding, fills, casts.
select role, name as kernel, count(*) as calls, round(sum(dur) / 1e6, 3) as ms,
  round(100.0 * sum(dur) / (select sum(dur) from kernels), 1) as percent, count(distinct layer) as layers
from kernels where role not in ('main', 'bias') group by role, name order by sum(dur) desc, name;

-- query: unattributed time
-- Kernels and copies that no layer could be found for, by name.
select name, category, phase, count(*) as calls, round(sum(dur) / 1e6, 3) as ms,
  round(100.0 * sum(dur) / (select sum(dur) from commands), 1) as percent,
  sum(operation is not null) as with_operation
from commands where layer is null group by name, category, phase order by sum(dur) desc, name;

-- query: iterations
-- Passes in order: how long, how much of it kernels ran, how many.
select name as pass, iteration, direction, round(dur / 1e6, 3) as ms, round(kernel_ns / 1e6, 3) as kernel_ms,
  round(100.0 * kernel_ns / dur, 1) as busy_percent, kernels, round(1.0 * flop / kernel_ns, 3) as gflops
from passes where side = (select min(side) from passes) order by ts;

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
-- Matrix products by size: how often, how long, how fast.
select M, N, K, batch, name as kernel, count(*) as calls, round(sum(dur) / 1e6, 3) as ms,
  round(1.0 * sum(flop) / sum(dur), 3) as gflops, group_concat(distinct layer) as layers
from kernels where M is not null group by M, N, K, batch, name order by sum(dur) desc, M, N, K;

-- query: copies
-- Reads and writes of buffers: bytes and rate.
select copy_direction as direction, layer, count(*) as calls, sum(bytes) as bytes, round(sum(dur) / 1e6, 3) as ms,
  round(1.0 * sum(bytes) / sum(dur), 3) as gb_per_s
from commands where category = 'copy' group by copy_direction, layer order by sum(dur) desc, layer;

-- query: evidence
-- What the links of kernels and copies rest on, and how much time lies on each.
select ifnull(layer_by, 'no layer') as layer_by, ifnull(operation_by, 'no operation') as operation_by,
  count(*) as calls, sum(sure is not null) as not_sure, round(sum(dur) / 1e6, 3) as ms
from commands group by 1, 2 order by sum(dur) desc;

-- query: doubts
-- Kernels whose layer or operation is not sure, by what they were linked to.
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
-- Layers whose span is much longer than their kernels: the host is the brake. By lost time per iteration.
select name as layer, direction, round(avg(dur) / 1e6, 3) as span_ms, round(avg(kernel_ns) / 1e6, 3) as kernel_ms,
  round(avg(dur - kernel_ns) / 1e6, 3) as idle_ms, round(100.0 * sum(kernel_ns) / sum(dur), 1) as busy_percent
from layers where kernel_ns is not null and (iteration is null or iteration > 0)
group by layer_index, name, direction order by avg(dur - kernel_ns) desc, min(ts);
