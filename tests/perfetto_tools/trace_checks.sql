-- What must hold for every trace that we write (tp_query.py --checks). Each query must
-- return no rows. They hold for Chrome JSON ("args.x") and for native traces
-- ("debug.x"). Categories assumed: 'layer' and 'kernel'.

-- check: importer-errors
-- The UI shows these as import errors; every one is data lost or altered.
select name, idx, severity, value from stats
where severity in ('error', 'data_loss') and value > 0;

-- check: not-empty
select 'no slices' as problem where (select count(*) from slice) = 0;

-- check: no-unfinished-slices
-- dur = -1 is a begin without an end; other negative values are accepted silently.
select id, ts, dur, name from slice where dur < 0;

-- check: no-negative-time
select id, ts, name from slice where ts < 0;

-- check: time-is-exact
-- From 2^53 ns (104 days) on, JSON's decimal microseconds lose nanoseconds.
select max(ts + dur) as last_ns from slice having max(ts + dur) >= 9007199254740992;

-- check: starts-near-zero
-- Relative time is easier to read; an epoch offset belongs in the metadata.
select min(ts) as first_ns from slice having min(ts) > 3600000000000;

-- check: no-sibling-overlap
-- Two slices of one depth on one track must be disjoint.
select track_id, name, ts, dur, next_ts, next_name from (
  select track_id, name, ts, dur,
         lead(ts) over w as next_ts, lead(name) over w as next_name
  from slice window w as (partition by track_id, depth order by ts, id))
where dur > 0 and ts + dur > next_ts;

-- check: children-inside-parents
select c.id, c.name, p.name as parent from slice c join slice p on p.id = c.parent_id
where c.ts < p.ts or c.ts + c.dur > p.ts + p.dur;

-- check: depth-is-sane
-- Slices deeper than 512 are lost or drawn wrong.
select name, depth from slice where depth > 100;

-- check: threads-are-named
select t.utid, t.tid from thread_track tt join thread t using (utid)
where tt.id in (select track_id from slice) and ifnull(t.name, '') = '' group by 1;

-- check: processes-are-named
select p.upid, p.pid from thread_track tt join thread using (utid)
join process p using (upid)
where tt.id in (select track_id from slice) and ifnull(p.name, '') = '' group by 1;

-- check: other-tracks-are-named
select id, type from track where id in (select track_id from slice)
and type not in ('thread_execution') and ifnull(name, '') = '';

-- check: no-undeclared-tracks
-- A native track without a descriptor gets the name of its first slice.
select t.id, t.name from track t where t.type like '%track_event%' and t.name =
  (select s.name from slice s where s.track_id = t.id order by s.ts limit 1)
and 1 < (select count(distinct s.name) from slice s where s.track_id = t.id);

-- check: thread-names-are-unique
select upid, name, count(*) as n from thread
where utid in (select utid from thread_track where id in (select track_id from slice))
group by upid, name having n > 1;

-- check: process-names-are-unique
select name, count(*) as n from process where name is not null and upid in
  (select upid from thread join thread_track using (utid)) group by name having n > 1;

-- check: slices-are-named
select id, ts, name from slice where ifnull(name, '') = '' or name = '[No name]';

-- check: names-are-short
-- Long mangled names hide what matters; keep the full name in an argument.
select id, length(name) as len from slice where length(name) > 250;

-- check: slices-have-a-category
select id, name from slice where ifnull(category, '') = '';

-- check: no-raw-escapes
-- Old importers keep \uXXXX and \\ as they are; write UTF-8 and no backslashes.
select 'name' as place, name as text from slice where name glob '*\[unt"\]*'
union all select key, string_value from args where string_value glob '*\u[0-9a-fA-F]*';

-- check: no-control-characters
select id, hex(name) as name_hex from slice where name glob '*[' || char(1) || '-' || char(31) || ']*';

-- check: no-python-or-float-leftovers
select key, display_value from args where lower(display_value) in
  ('nan', 'inf', '-inf', 'none', 'null', 'undefined', 'true', 'false') and value_type = 'string'
or display_value like '<% object at 0x%>';

-- check: no-overflowed-ids
-- A JSON integer of 2^63 or more is imported as a wrong real number (2^64-1: -1.0).
select key, real_value from args where value_type = 'real'
and (real_value <= -1e18 or (real_value = -1.0 and key glob '*id'));

-- check: argument-types-are-stable
-- One key, one type: else SQL comparisons and the UI's aggregation go wrong.
select key, group_concat(distinct value_type) as types from args
where key like 'args.%' or key like 'debug.%'
group by key having count(distinct value_type) > 1;

-- check: no-empty-arguments
select key from args where value_type = 'string' and ifnull(string_value, '') = ''
and (key like 'args.%' or key like 'debug.%') group by key;

-- check: kernels-lie-in-their-layer
-- A kernel that names a layer must lie inside a slice of that layer (of any track).
select k.id, k.name from slice k where k.category in ('kernel', 'copy')
and coalesce(extract_arg(k.arg_set_id, 'args.layer'), extract_arg(k.arg_set_id, 'debug.layer')) is not null
and not exists (
  select 1 from slice l where l.category = 'layer' and l.ts <= k.ts
  and l.ts + l.dur >= k.ts + k.dur and l.name = coalesce(
    extract_arg(k.arg_set_id, 'args.layer'), extract_arg(k.arg_set_id, 'debug.layer')));

-- check: links-name-their-evidence
-- A kernel with a layer or an operation says what the link rests on.
select id, name from slice where category in ('kernel', 'copy') and (
  (coalesce(extract_arg(arg_set_id, 'args.layer'), extract_arg(arg_set_id, 'debug.layer')) is not null and
   coalesce(extract_arg(arg_set_id, 'args.layer_by'), extract_arg(arg_set_id, 'debug.layer_by')) is null)
  or (coalesce(extract_arg(arg_set_id, 'args.operation'), extract_arg(arg_set_id, 'debug.operation')) is not null and
   coalesce(extract_arg(arg_set_id, 'args.operation_by'), extract_arg(arg_set_id, 'debug.operation_by')) is null));

-- check: gemm-sizes-are-positive-integers
select s.id, s.name, a.key, a.value_type, a.display_value from slice s join args a using (arg_set_id)
where (a.key glob '*.gemm.[MNK]') and (a.value_type not in ('int', 'uint') or a.int_value <= 0);

-- check: gemm-sizes-are-complete
select s.id, s.name, count(*) as n from slice s join args a using (arg_set_id)
where a.key glob '*.gemm.[MNK]' group by s.id having n <> 3;

-- check: shapes-are-well-formed
select key, string_value from args where key glob '*_shape'
and (string_value is null or string_value glob '*[^0-9x]*' or string_value glob '*xx*');

-- check: no-lost-flows
-- An end without a start, a step outside of a slice, ...: not "errors", but lost arrows.
select name, value from stats where name like 'flow_%' and value > 0;

-- check: flows-join-two-slices
select f.id, s.name from flow f join slice s on s.id = f.slice_out
where f.slice_out = f.slice_in;

-- check: one-launch-per-kernel
-- More than one arrow into a kernel means that ids collide.
select s.id, s.name, count(*) as n from flow f join slice s on s.id = f.slice_in
where s.category = 'kernel' group by s.id having n > 1;

-- check: counters-are-finite
select t.name, c.ts, c.value from counter c join counter_track t on t.id = c.track_id
where c.value is null or abs(c.value) > 1e300;

-- check: counters-are-named
select id, type from counter_track where ifnull(name, '') = '';

-- check: counters-end-inside-the-trace
select t.name, c.ts from counter c join counter_track t on t.id = c.track_id
where c.ts > (select max(ts + dur) from slice) or c.ts < (select min(ts) from slice);

-- check: at-most-one-clock-snapshot
-- A later snapshot moves time in a step: begin and end may swap.
select count(distinct snapshot_id) as n from clock_snapshot having n > 1;
