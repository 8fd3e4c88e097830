-- Writes the changes of one job in one turn, all or nothing.
-- KEYS  1 state  2 job  3 tasks  4 workers  5 supersteps  6 events  7 metrics  8 barriers (streams), and of general
--       tasks, unless this commit leaves them alone: 9 classes  10 graph  11 states  12 values  13 faults  14 leases
-- ARGV  1 epoch  2 seq  3 mode  then operations: code, key index, n, n arguments
--       mode  "next": the changes since the commit before; "new": a job that takes the place of whatever was there;
--             "whole": everything, after a loss of the store was noticed; "gone": nothing is to be left
--       S HSET   D HDEL   X XADD (first argument: entries kept)   H every second entry goes   E EXPIRE
-- Returns {'ok'}, {'again'} when this seq is stored already, {'lost', seq} when the store knows less than this engine
-- had committed, {'fenced', epoch, seq}, or {'type', key, found}.
-- Lua does not roll back, so everything is checked before the first write.
local mode = ARGV[3]
for i = 1, #KEYS do
  local found = redis.call('TYPE', KEYS[i]).ok
  local wanted = i >= 6 and i <= 8 and 'stream' or 'hash'
  if found ~= 'none' and found ~= wanted and mode ~= 'gone' and mode ~= 'new' then
    return {'type', KEYS[i], found}
  end
end
local my_epoch, my_seq = tonumber(ARGV[1]), tonumber(ARGV[2])
local stored = {}
if redis.call('TYPE', KEYS[1]).ok == 'hash' then stored = redis.call('HMGET', KEYS[1], 'epoch', 'seq') end
local epoch, seq = tonumber(stored[1] or '0') or 0, tonumber(stored[2] or '0') or 0
if epoch > my_epoch then return {'fenced', tostring(epoch), tostring(seq)} end
if epoch == my_epoch and my_seq == seq then return {'again'} end
if mode == 'next' then
  -- An older epoch, or none: the claim of this engine is gone, and with it more.
  if epoch < my_epoch or seq < my_seq - 1 then return {'lost', tostring(seq)} end
  if seq >= my_seq then return {'fenced', tostring(epoch), tostring(seq)} end
end

if mode == 'gone' then
  redis.call('UNLINK', unpack(KEYS))
  return {'ok'}
end
if mode == 'new' then redis.call('UNLINK', unpack(KEYS)) end
if mode == 'whole' then
  redis.call('UNLINK', unpack(KEYS, 1, 5))
  redis.call('UNLINK', unpack(KEYS, 9))
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'seq', ARGV[2])
local at = 4
while at <= #ARGV do
  local code, key, n = ARGV[at], KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2])
  local first, last = at + 3, at + 2 + n
  if code == 'S' then
    redis.call('HSET', key, unpack(ARGV, first, last))
  elseif code == 'D' then
    redis.call('HDEL', key, unpack(ARGV, first, last))
  elseif code == 'E' then
    redis.call('EXPIRE', key, ARGV[first])
  elseif code == 'H' then
    -- Written anew: XDEL would only mark the entries, and keep their memory.
    local entries = redis.call('XRANGE', key, '-', '+')
    redis.call('UNLINK', key)
    for i = 1, #entries, 2 do redis.call('XADD', key, entries[i][1], unpack(entries[i][2])) end
  else
    local before = redis.call('XLEN', key)
    redis.call('XADD', key, 'MAXLEN', '=', ARGV[first], '*', unpack(ARGV, first + 1, last))
    local dropped = before + 1 - redis.call('XLEN', key)
    if dropped > 0 then
      local counters = {[KEYS[6]] = 'events', [KEYS[7]] = 'metrics', [KEYS[8]] = 'barriers'}
      redis.call('HINCRBY', KEYS[2], counters[key] .. '_dropped', dropped)
    end
  end
  at = last + 1
end
return {'ok'}
