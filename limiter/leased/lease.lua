-- Leases tokens of one bucket to nodes. The rules are those of model.go, in microseconds: change one and the differential
-- test tells. Only commands of Redis 6.2.
--
-- KEYS[1]  the bucket: one hash, so that what is leased and who has it can never be evicted apart
-- ARGV[1]  who asks
-- ARGV[2]  "<" and 15 "d": seq (0: look only), ack, kept, back, want, due, spend, step, demand, dither; rate, period, burst, tick, life;
--          and one "d" for each of those whose tokens are spent, unless all need step
--
-- Returns  "<dddddddd" status (0 ok, 1 reset, 2 stale, 3 the key holds something else), grant, whole, frac, wait, nodes, room, ends
--
-- State    field "h": "<B" and 11 "d": tag; rate, period, burst; whole tokens, fraction over period, instant; what is out,
--          demand of all records, their number, and instants before and after which none expires
--          field of each node: 15 "d": seq, held, demand, leased, credit, instant, expiry, and its last reply
--
-- Numbers are doubles: whole ones are exact below 2^53, and are packed, never printed.

local call, floor, ceil, min, max = redis.call, math.floor, math.ceil, math.min, math.max
local pack, unpack, byte = struct.pack, struct.unpack, string.byte
local HEAD, RECORD, REPLY, TAG = '<Bddddddddddd', '<ddddddddddddddd', '<dddddddd', 0xB2
local NEVER, BACKSTEP = 9007199254740992, 1000000

local key, id = KEYS[1], ARGV[1]
local seq, ack, kept, back, want, due, spend, step, demand, dither, rate, period, burst, tick, life =
  unpack('<ddddddddddddddd', ARGV[2])

local stored = call('HMGET', key, 'h', id)
local head, own = stored[1], stored[2]
if head and (#head ~= 89 or byte(head) ~= TAG) or own and #own ~= 120 or own and not head then
  return pack(REPLY, 3, 0, 0, 0, 0, 1, 0, 0)
end

local was, held, wanted, leased, credit, at = 0, 0, 0, 0, 0, 0
if own then
  local _, status, grant, whole, frac, wait, nodes, room, ends
  was, held, wanted, leased, credit, at, _, status, grant, whole, frac, wait, nodes, room, ends = unpack(RECORD, own)
  if seq > 0 and seq <= was then
    if seq == was then return pack(REPLY, status, grant, whole, frac, wait, nodes, room, ends) end -- sent twice
    return pack(REPLY, 2, 0, 0, 0, 0, 1, 0, 0)
  end
end

local t = call('TIME')
local now = t[1] * 1000000 + t[2]

-- Whole part and remainder of a·b / d, for b, d < 2^45. In pieces of seven bits nothing passes 2^53.
local function muldiv(a, b, d)
  local v = a * b
  if v < 4503599627370496 then
    local rem = v % d
    return (v - rem) / d, rem
  end
  local part = a % d
  local q, rem = 0, 0
  for k = b < 1073741824 and 4 or 6, 0, -1 do
    v = rem * 128 + part * (floor(b / 128 ^ k) % 128)
    rem = v % d
    q = q * 128 + (v - rem) / d
  end
  return (a - part) / d * b + q, rem
end

local whole, frac, out, all, nodes, next, latest = burst, 0, 0, 0, 0, NEVER, 0
if head then
  local _, r, p, b, ts
  _, r, p, b, whole, frac, ts, out, all, nodes, next, latest = unpack(HEAD, head)
  if now < ts - BACKSTEP then
    ts, next = now, now -- a clock that was set back earns nothing, and no record may outlive its time by the step
  elseif now < ts then
    now = ts
  end
  -- Capped by what was out until now: what is given back in this call was not there to be refilled meanwhile.
  local room = b - out
  if now > ts and whole < room then
    if (now - ts) * r / p >= b + 1 then
      whole, frac = room, 0
    else
      local q, rem = muldiv(now - ts, r, p)
      whole, frac = whole + q, frac + rem
      if frac >= p then whole, frac = whole + 1, frac - p end
      if whole >= room then whole, frac = room, 0 end
    end
  end
  if r ~= rate or p ~= period or b ~= burst then
    if out == 0 and whole >= b then
      whole, frac = burst, 0 -- full stays full
    elseif p ~= period then
      local _
      frac, _ = muldiv(frac, period, p)
    end
  end
end

local function cap()
  local room = max(0, burst - out)
  if whole >= room then whole, frac = room, 0 end
end
cap()

if seq == 0 then return pack(REPLY, 0, 0, whole, frac, 0, max(1, nodes), 0, 0) end

if now >= next then
  -- Nodes whose time is over are forgotten. Their tokens are burnt, as they may have been spent. What is out is summed up
  -- anew, so that whatever failed half-way before heals; and nothing is written before all is known to be ours.
  local fields = call('HGETALL', key)
  for i = 1, #fields, 2 do
    if fields[i] ~= 'h' and #fields[i + 1] ~= 120 then return pack(REPLY, 3, 0, 0, 0, 0, 1, 0, 0) end
  end
  next, latest, out, all, nodes = NEVER, 0, 0, 0, 0
  for i = 1, #fields, 2 do
    local name, value = fields[i], fields[i + 1]
    if name ~= 'h' then
      local s, h, d, l, c, a, e, r1, r2, r3, r4, r5, r6, r7, r8 = unpack(RECORD, value)
      if e <= now then
        call('HDEL', key, name)
        if name == id then own = false end
      else
        if a > now then -- from before the clock was set back: it has its own life from now on
          e, a = e - a + now, now
          call('HSET', key, name, pack(RECORD, s, h, d, l, c, a, e, r1, r2, r3, r4, r5, r6, r7, r8))
        end
        next, latest, out, all, nodes = min(next, e), max(latest, e), out + h, all + d, nodes + 1
      end
    end
  end
end

local status = 0
if own then
  out, all, nodes = out - held, all - wanted, nodes - 1
  local lost = 0
  if ack > 0 and ack < was then lost = leased end -- the last reply never arrived: what was leased with it is untouched
  if ack == 0 or kept + back > held - lost then
    own = false -- another life of the node, or of the data
  else
    whole = whole + lost + back
    out = out + kept
  end
  cap()
end
if not own then kept, status = 0, 1 end

local permicro = rate / period
local share = demand / (all + demand)
local pace = share * permicro
local ceiling = max(1, step, pace * life)
if own then
  credit = credit + pace * max(0, now - at)
else
  -- Who asks seldom gets the part of what it asks for that everybody gets on average.
  credit = due * min(1, permicro * 1e12 / (all + demand))
end
credit = min(ceiling, credit)
local scarce = whole < rate * tick / period
local shared = scarce and all > 0
local grant = min(want, whole)
if shared then
  grant = min(grant, max(0, floor(credit + dither / 1048576 * step)))
else
  grant = min(grant, max(due, ceil(share * whole)))
end
if grant < spend then
  -- Only what those who want it whole can spend, in order: the rest would be lost.
  local left = grant
  if #ARGV[2] == 120 then
    left = grant % step
  else
    for i = 121, #ARGV[2], 8 do
      local cost = unpack('<d', ARGV[2], i)
      if cost <= left then left = left - cost end
    end
  end
  grant = grant - left
end
credit = max(credit - grant, -step)
local wait = 0
if shared and grant < want then
  wait = min(max(ceil((step - credit) / pace), tick), 5 * tick)
elseif grant < due then
  wait = scarce and tick or max(1, floor(tick / 10))
end

whole = whole - grant
leased = max(0, grant - spend)
held = kept + leased
out = out + leased
local told, listed = nodes + 1, held > 0 or scarce and want > 0
latest = max(latest, now)
if listed then
  all, nodes, next, latest = all + demand, nodes + 1, min(next, now + life), max(latest, now + life)
end
local room, ends = max(0, burst - (out - held)), next < NEVER and next - now or 0
head = pack(HEAD, TAG, rate, period, burst, whole, frac, now, out, all, nodes, next, latest)
if listed then
  call('HSET', key, 'h', head,
    id, pack(RECORD, seq, held, demand, leased, credit, now, now + life, status, grant, whole, frac, wait, told, room, ends))
else
  call('HSET', key, 'h', head)
  if stored[2] then call('HDEL', key, id) end
end
-- Longer than everything the state says can matter: until then all leases are over, of whatever life, and the bucket is full.
call('PEXPIRE', key, string.format('%.0f', min(9000000000000, ceil((latest - now + burst * period / rate) / 1000) + 1000)))
return pack(REPLY, status, grant, whole, frac, wait, told, room, ends)
