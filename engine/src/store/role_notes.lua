-- Notes the term of a process of a shard: one that followed and that the primary goes on without, or that takes over. Only if this
-- engine leads.
-- KEYS  1 engine   ARGV  1 my epoch  2 field of the shard  3 term
-- Returns 1, or 0 if another engine leads: then nothing was written.
local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0') or 0
-- A lower one than mine, or none, means that the store has lost mine: nobody has led since.
if epoch > tonumber(ARGV[1]) then return 0 end
-- Terms are too large for numbers of Lua: as text the longer one is higher, of equally long ones the later in the order of text.
local noted, term = redis.call('HGET', KEYS[1], ARGV[2]) or '', ARGV[3]
-- A first write that takes no memory: at its limit Redis refuses no later one of this script.
redis.call('HDEL', KEYS[1], '')
if #term > #noted or (#term == #noted and term > noted) then redis.call('HSET', KEYS[1], ARGV[2], term) end
return 1
