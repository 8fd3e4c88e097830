-- Writes the changes of one job in one turn, all or nothing.
-- KEYS  1 state  2 job, then the others that this commit writes; all of the job, in their order, unless mode is "next"
-- ARGV  1 epoch  2 seq  3 mode  4 kinds: a letter for each key, h for a hash and s for a stream  5 "beyond": also where Redis is at its
--       memory limit; "within"  6 nonce of the submission, empty unless mode is "whole"
--       then operations: code, place of the key, n, n arguments
--       mode  "next": the changes since the commit before; "new": a job that takes the place of whatever was there;
--             "whole": everything, after a loss of the store was noticed; "gone": nothing is to be left but a fence
--       S HSET   D HDEL   P, R the same of one MessagePack array   X XADD (first arguments: entries kept, field that counts those dropped)
--       C counts entries as dropped that were left out (field, number)
--       H every second entry goes   M two neighbors become one point   E EXPIRE
-- Returns {'ok'}, {'again'} when this seq is stored already, {'lost', seq} when the store knows less than this engine
-- had committed, or {'fenced', epoch, seq}.
-- A key that holds something else than ours is as good as lost: "whole" puts ours in its place.
-- A call may come a second time, long after it was answered: within an epoch, numbers only rise, also from a job to the next
-- one of its name. Of one that is gone its number stays for a while as `gone`, so that what was sent before it writes nothing.
-- Lua does not roll back, so everything is checked before the first write.
local call, mode = redis.call, ARGV[3]
-- Two neighbors of a loss curve as one: the later one, with the iterations of both and the means over them.
local function merged(earlier, later)
  local a, b, both = {}, {}, {}
  for i = 1, #earlier, 2 do a[earlier[i]] = earlier[i + 1] end
  for i = 1, #later, 2 do b[later[i]] = later[i + 1] end
  local function number(point, field) return tonumber(point[field] or '') or 0 end
  -- What was undone by then is in no mean with what came in its place.
  if a.generation ~= b.generation and b.undone_beyond and number(a, 'samples') > number(b, 'undone_beyond') then
    return later
  end
  local function mean(field, weight, form)
    local of_a, of_b = number(a, weight), number(b, weight)
    if of_a == 0 then both[field] = b[field]
    elseif of_b == 0 then both[field] = a[field]
    else
      local sum = number(a, field) * of_a + number(b, field) * of_b
      both[field] = string.format(form, sum / (of_a + of_b))
    end
  end
  -- In points that earlier releases wrote each sample weighs as much, or it is not known how many there are.
  for _, point in ipairs({a, b}) do point.loss_weight = point.loss_weight or point.loss_samples end
  mean('loss', a.loss_weight and b.loss_weight and 'loss_weight' or 'iterations', '%.7g')
  both.loss_weight = string.format('%.12g', number(a, 'loss_weight') + number(b, 'loss_weight'))
  for _, field in ipairs({'step_us', 'compute_us', 'wait_us'}) do mean(field, 'iterations', '%.0f') end
  mean('staleness_mean', 'iterations', '%.2f')
  both.staleness_max = string.format('%.0f', math.max(number(a, 'staleness_max'), number(b, 'staleness_max')))
  for _, field in ipairs({'iterations', 'loss_samples'}) do
    both[field] = string.format('%.0f', number(a, field) + number(b, field))
  end
  local fields = {}
  for i = 1, #later, 2 do
    fields[i], fields[i + 1] = later[i], both[later[i]] or later[i + 1]
  end
  return fields
end
local function failed(answer) return type(answer) == 'table' and answer.err ~= nil end
local function count_dropped(field, entries)
  -- Only somebody else makes a word of the count: that stops no job.
  if failed(redis.pcall('HINCRBY', KEYS[2], field, entries)) then call('HSET', KEYS[2], field, entries) end
end
local goes_on = mode == 'next' or mode == 'whole'
local has_summary, foreign = true, {}
if goes_on then
  for i = 1, #KEYS do
    local found = call('TYPE', KEYS[i]).ok
    local wanted = string.sub(ARGV[4], i, i) == 's' and 'stream' or 'hash'
    foreign[i] = found ~= 'none' and found ~= wanted
    if i == 2 then has_summary = found ~= 'none' end
  end
end
local my_epoch, my_seq = tonumber(ARGV[1]), tonumber(ARGV[2])
local stored = {}
if call('TYPE', KEYS[1]).ok == 'hash' then stored = call('HMGET', KEYS[1], 'epoch', 'seq', 'gone') end
local epoch, seq = tonumber(stored[1] or '0') or 0, tonumber(stored[2] or stored[3] or '0') or 0
-- `tostring` would write large ones as 9e+15.
local function whole(number) return string.format('%.0f', number) end
if epoch > my_epoch then return {'fenced', whole(epoch), whole(seq)} end
if epoch == my_epoch and my_seq == seq then return {'again'} end
if mode == 'next' then
  -- An older epoch, or none: the claim of this engine is gone, and with it more.
  if epoch < my_epoch or seq < my_seq - 1 then return {'lost', whole(seq)} end
  if seq >= my_seq then return {'fenced', whole(epoch), whole(seq)} end
  -- Somebody removed what people see of it, or put something else in the place of what this commit writes.
  if not has_summary then return {'lost', whole(seq)} end
  for i = 1, #KEYS do
    if foreign[i] then return {'lost', whole(seq)} end
  end
elseif epoch == my_epoch and seq > my_seq then
  return {'fenced', whole(epoch), whole(seq)}
end

if mode == 'new' or mode == 'gone' then call('UNLINK', unpack(KEYS)) end
if mode == 'whole' then
  -- Streams keep what happened before, and how much of it is not there any more is known nowhere else.
  local counts, nonce = {}, nil
  local summary = redis.pcall('HGETALL', KEYS[2])
  if not failed(summary) then
    for i = 1, #summary, 2 do
      if summary[i] == 'nonce' then nonce = summary[i + 1] end
      if string.find(summary[i], '_dropped$') and tonumber(summary[i + 1]) then
        counts[#counts + 1] = summary[i]
        counts[#counts + 1] = summary[i + 1]
      end
    end
  end
  -- Redis may have gone back to the job that had this name before: of that one nothing stays.
  local is_other = nonce and ARGV[6] ~= '' and nonce ~= ARGV[6]
  if is_other then counts = {} end
  for i = 1, #KEYS do
    if is_other or foreign[i] or string.sub(ARGV[4], i, i) == 'h' then
      call('UNLINK', KEYS[i])
    else
      -- It may have gone back to an end that does not hold any more.
      call('PERSIST', KEYS[i])
    end
  end
  if #counts > 0 then call('HSET', KEYS[2], unpack(counts)) end
end
-- At its limit Redis refuses a script whose first write may take memory, and no later write: this one takes none, nor do those above.
if ARGV[5] == 'beyond' then call('HDEL', KEYS[1], '') end
call('HSET', KEYS[1], 'epoch', ARGV[1], mode == 'gone' and 'gone' or 'seq', ARGV[2])
local at = 7
while at <= #ARGV do
  local code, key, n = ARGV[at], KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2])
  local first, last = at + 3, at + 2 + n
  if code == 'S' then
    call('HSET', key, unpack(ARGV, first, last))
  elseif code == 'P' then
    call('HSET', key, unpack(cmsgpack.unpack(ARGV[first])))
  elseif code == 'R' then
    call('HDEL', key, unpack(cmsgpack.unpack(ARGV[first])))
  elseif code == 'D' then
    call('HDEL', key, unpack(ARGV, first, last))
  elseif code == 'C' then
    count_dropped(ARGV[first], ARGV[last])
  elseif code == 'E' then
    call('EXPIRE', key, ARGV[first])
  elseif code == 'H' then
    -- Written anew: XDEL would only mark the entries, and keep their memory.
    local entries = call('XRANGE', key, '-', '+')
    call('UNLINK', key)
    for i = 1, #entries, 2 do call('XADD', key, entries[i][1], unpack(entries[i][2])) end
  elseif code == 'M' then
    local entries = call('XRANGE', key, '-', '+')
    call('UNLINK', key)
    for i = 1, #entries, 2 do
      local first, second = entries[i], entries[i + 1]
      if second then
        call('XADD', key, second[1], unpack(merged(first[2], second[2])))
      else
        call('XADD', key, first[1], unpack(first[2]))
      end
    end
  else
    local before = call('XLEN', key)
    local function add() return redis.pcall('XADD', key, 'MAXLEN', '=', ARGV[first], '*', unpack(ARGV, first + 2, last)) end
    -- Only somebody else gives a stream the last id that there is: that stops no job.
    if failed(add()) then
      call('UNLINK', key)
      add()
    end
    local dropped = before + 1 - call('XLEN', key)
    if dropped > 0 then count_dropped(ARGV[first + 1], dropped) end
  end
  at = last + 1
end
return {'ok'}
