-- Takes or renews the right to be the active engine.
-- KEYS  1 engine   ARGV  1 instance  2 length of the lease in ms  3 my epoch (0: take)  4 address  5 epoch to exceed
--       6 clock of this engine in ms, for the next one (0: it has none yet)
--       7, 8 epoch and end of the lease that I have seen here (0: none, or it does not matter any more): a record from before
--       that is one of a store that has gone back, and whoever leads is about to say so
--       9 which lease of my own name I take before it ends: "here", the one of my address; "anywhere"; or "nowhere"
--       10 cluster of this engine, for those who stand by
-- Returns the epoch as text, or '0' if somebody else is active.
-- Epochs never repeat, also not after the store has gone back by a moment: a new one is at least the time in ms.
local time = redis.call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local length_ms, mine, floor = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
-- What is no record of a lease holds nobody back: it would for ever, as nobody else ever writes one.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
local stored = redis.call('HMGET', KEYS[1], 'instance', 'epoch', 'until_ms', 'address')
local epoch, until_ms = tonumber(stored[2] or '0') or 0, tonumber(stored[3] or '0') or 0
if not (epoch >= 0 and epoch < 2^53 - 1) then epoch = 0 end
if mine > 0 then
  -- A lower one than mine, or none, means that the store has lost mine: nobody has led since.
  if epoch > mine then return '0' end
  epoch = mine
else
  -- Nobody holds a lease for longer than it lasts: one that says so was taken before the clock was set back.
  local held = until_ms > now_ms and until_ms <= now_ms + 2 * length_ms
  local seen_epoch, seen_until = tonumber(ARGV[7]), tonumber(ARGV[8])
  -- Whoever was not awake for a while has not seen that it was renewed.
  local unchanged = epoch == seen_epoch and until_ms == seen_until
  local there = ARGV[9] == 'anywhere' and unchanged or ARGV[9] == 'here' and stored[4] == ARGV[4]
  if held and not (stored[1] == ARGV[1] and there) then return '0' end
  -- A lease that was given up has the end 0.
  if epoch < seen_epoch or epoch == seen_epoch and until_ms ~= 0 and until_ms < seen_until then return '0' end
  epoch = math.max(epoch + 1, now_ms, floor + 1)
end
local text, until_text = string.format('%.0f', epoch), string.format('%.0f', now_ms + length_ms)
if length_ms == 0 then until_text = '0' end
-- It lies there anyway: at its memory limit, Redis refuses a script whose first write may take more, and no later one.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'instance', ARGV[1], 'epoch', text,
  'until_ms', until_text, 'address', ARGV[4], 'cluster', ARGV[10])
if ARGV[6] ~= '0' then redis.call('HSET', KEYS[1], 'clock_ms', ARGV[6]) end
return text
