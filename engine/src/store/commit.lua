-- Writes the changes of one job in one turn, all or nothing.
-- KEYS  1 state  2 job  3 tasks  4 workers  5 supersteps  6 events  7 metrics  8 barriers (streams)
-- ARGV  1 epoch  2 seq  then operations: code, key index, n, n arguments
--       S HSET   D HDEL   X XADD (first argument: entries kept)   E EXPIRE
-- Returns {'ok'}, {'again'} when this seq is stored already, {'fenced', epoch, seq}, or {'type', key, found}.
-- Lua does not roll back, so everything is checked before the first write.
for i = 1, 8 do
  local found = redis.call('TYPE', KEYS[i]).ok
  local wanted = i < 6 and 'hash' or 'stream'
  if found ~= 'none' and found ~= wanted then return {'type', KEYS[i], found} end
end
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'seq')
local epoch, seq = tonumber(stored[1] or ARGV[1]), tonumber(stored[2] or '0')
local my_epoch, my_seq = tonumber(ARGV[1]), tonumber(ARGV[2])
if my_epoch ~= epoch then return {'fenced', tostring(epoch), tostring(seq)} end
if my_seq == seq then return {'again'} end
if my_seq ~= seq + 1 then return {'fenced', tostring(epoch), tostring(seq)} end

redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'seq', ARGV[2])
local at = 3
while at <= #ARGV do
  local code, key, n = ARGV[at], KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2])
  local first, last = at + 3, at + 2 + n
  if code == 'S' then
    redis.call('HSET', key, unpack(ARGV, first, last))
  elseif code == 'D' then
    redis.call('HDEL', key, unpack(ARGV, first, last))
  elseif code == 'E' then
    redis.call('EXPIRE', key, ARGV[first])
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
