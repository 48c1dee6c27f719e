-- Leases tokens of one bucket to nodes. The rules are those of model.go, in microseconds: change one and the differential
-- test tells. Only commands of Redis 6.2.
--
-- KEYS[1]  the bucket: one hash, so that what is leased and who has it can never be evicted apart
-- ARGV[1]  who asks
-- ARGV[2]  "<" and 15 "d": seq (0: look only), ack, kept, back, want, due, spend, step, demand, dither; rate, period, burst, tick, life
--
-- Returns  "<dddddd" status (0 ok, 1 reset, 2 stale, 3 the key holds something else), grant, whole, frac, wait, nodes
--
-- State    field "h": "<B" and 10 "d": tag; rate, period, burst; whole tokens, fraction over period, instant; what is out,
--          demand of all records, their number, and an instant before which none expires
--          field of each node: 13 "d": seq, held, demand, leased, credit, instant, expiry, and its last reply
--
-- Numbers are doubles: whole ones are exact below 2^53, and are packed, never printed.

local call, floor, ceil, min, max = redis.call, math.floor, math.ceil, math.min, math.max
local pack, unpack, byte = struct.pack, struct.unpack, string.byte
local HEAD, RECORD, REPLY, TAG = '<Bdddddddddd', '<ddddddddddddd', '<dddddd', 0xB1
local NEVER, BACKSTEP = 9007199254740992, 1000000

local key, id = KEYS[1], ARGV[1]
local seq, ack, kept, back, want, due, spend, step, demand, dither, rate, period, burst, tick, life =
  unpack('<ddddddddddddddd', ARGV[2])

local stored = call('HMGET', key, 'h', id)
local head, own = stored[1], stored[2]
if head and (#head ~= 81 or byte(head) ~= TAG) or own and #own ~= 104 or own and not head then
  return pack(REPLY, 3, 0, 0, 0, 0, 1)
end

local was, held, wanted, leased, credit, at, expiry = 0, 0, 0, 0, 0, 0, 0
if own then
  local status, grant, whole, frac, wait, nodes
  was, held, wanted, leased, credit, at, expiry, status, grant, whole, frac, wait, nodes = unpack(RECORD, own)
  if seq > 0 and seq <= was then
    if seq == was then return pack(REPLY, status, grant, whole, frac, wait, nodes) end -- sent twice
    return pack(REPLY, 2, 0, 0, 0, 0, 1)
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

local whole, frac, out, all, nodes, next = burst, 0, 0, 0, 0, NEVER
if head then
  local _, r, p, b, ts
  _, r, p, b, whole, frac, ts, out, all, nodes, next = unpack(HEAD, head)
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

if seq == 0 then return pack(REPLY, 0, 0, whole, frac, 0, max(1, nodes)) end

if now >= next then
  -- Nodes whose time is over are forgotten. Their tokens are burnt, as they may have been spent.
  next, all, nodes = NEVER, 0, 0
  local fields = call('HGETALL', key)
  for i = 1, #fields, 2 do
    local name, value = fields[i], fields[i + 1]
    if name ~= 'h' then
      local s, h, d, l, c, a, e, r1, r2, r3, r4, r5, r6 = unpack(RECORD, value)
      if e <= now then
        out = out - h
        call('HDEL', key, name)
        if name == id then own = false end
      else
        if e > now + life then -- from before the clock was set back
          e = now + life
          call('HSET', key, name, pack(RECORD, s, h, d, l, c, a, e, r1, r2, r3, r4, r5, r6))
        end
        next, all, nodes = min(next, e), all + d, nodes + 1
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
if grant < spend then grant = grant - grant % step end
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
local told = nodes + 1
if held > 0 or scarce and want > 0 then
  all, nodes = all + demand, nodes + 1
  next = min(next, now + life)
  call('HSET', key, 'h', pack(HEAD, TAG, rate, period, burst, whole, frac, now, out, all, nodes, next),
    id, pack(RECORD, seq, held, demand, leased, credit, now, now + life, status, grant, whole, frac, wait, told))
else
  call('HSET', key, 'h', pack(HEAD, TAG, rate, period, burst, whole, frac, now, out, all, nodes, next))
  if stored[2] then call('HDEL', key, id) end
end
-- Longer than everything the state says can matter: until then all leases are over and the bucket is full.
call('PEXPIRE', key, string.format('%.0f', min(9000000000000, ceil((life + burst * period / rate) / 1000) + 1000)))
return pack(REPLY, status, grant, whole, frac, wait, told)
