-- Takes numbers of workers that nobody has had before.
-- KEYS  1 incarnations   ARGV  1 highest number that is known to be taken  2 numbers to leave out where the store is behind
--   that  3 how many to take
-- Returns the last number taken, as text. What is no number, or none that was counted up to, was written by somebody else.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'string' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
local last = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
local known = tonumber(ARGV[1])
if not (last >= 0 and last < 2^50 and last == math.floor(last)) then last = 0 end
if last < known then last = known + tonumber(ARGV[2]) end
local text = string.format('%.0f', last + tonumber(ARGV[3]))
-- A first write that takes no memory, and here does nothing: at its limit Redis refuses no later one of this script.
redis.call('PERSIST', KEYS[1])
redis.call('SET', KEYS[1], text)
return text
