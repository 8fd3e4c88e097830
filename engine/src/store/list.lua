-- Puts a job on the list, or takes it off, if this engine still has the lead.
-- KEYS  1 engine  2 jobs   ARGV  1 my epoch  2 job  3 time of submission in ms, or '' to take it off
-- Returns 1, or 0 if another engine has the lead.
if tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0') > tonumber(ARGV[1]) then return 0 end
if ARGV[3] == '' then
  redis.call('ZREM', KEYS[2], ARGV[2])
else
  redis.call('ZADD', KEYS[2], ARGV[3], ARGV[2])
end
return 1
