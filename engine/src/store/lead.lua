-- Takes or renews the right to be the active engine.
-- KEYS  1 engine   ARGV  1 instance  2 length of the lease in ms  3 my epoch (0: take)  4 address
-- Returns the epoch as text, or '0' if somebody else is active.
-- Epochs never repeat, also not after the store has gone back by a moment: a new one is at least the time in ms.
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local stored = redis.call('HMGET', KEYS[1], 'instance', 'epoch', 'until_ms')
local epoch, until_ms = tonumber(stored[2] or '0'), tonumber(stored[3] or '0')
local mine = tonumber(ARGV[3])
if mine > 0 then
  -- A lower one than mine, or none, means that the store has lost mine: nobody has led since.
  if epoch > mine then return '0' end
  epoch = mine
else
  if until_ms > now_ms and stored[1] ~= ARGV[1] then return '0' end
  epoch = math.max(epoch + 1, now_ms)
end
local text = string.format('%.0f', epoch)
redis.call('HSET', KEYS[1], 'instance', ARGV[1], 'epoch', text,
  'until_ms', string.format('%.0f', now_ms + tonumber(ARGV[2])), 'address', ARGV[4])
return text
