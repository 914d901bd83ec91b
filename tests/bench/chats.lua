-- Requests for wrk, made of the text that chats.py has left in a file: what stands before and after the words
-- of the user, and the words to draw from. BENCH_KIND: repeated (256 prompts in turn) or distinct (never the
-- same twice, as long as BENCH_SEED is another for every run).
local lines = {}
for line in io.lines(os.getenv("BENCH_TEXT")) do lines[#lines + 1] = line end
local before, after, count, offered = lines[1], lines[2], tonumber(lines[3]), #lines - 3

local function body()
  local drawn = {}
  for at = 1, count do drawn[at] = lines[3 + math.random(offered)] end
  return before .. table.concat(drawn, " ") .. after
end

wrk.method = "POST"
wrk.path = "/v1/chat/completions"
wrk.headers["Content-Type"] = "application/json"

-- Not before init: only then does wrk know the Host.
local bodies, last = {}, 0
function init()
  local repeats = os.getenv("BENCH_KIND") == "repeated"
  math.randomseed(repeats and 1 or tonumber(os.getenv("BENCH_SEED")))
  for at = 1, repeats and 256 or 0 do bodies[at] = wrk.format(nil, nil, nil, body()) end
end

function request()
  last = last % 256 + 1
  return bodies[last] or wrk.format(nil, nil, nil, body())
end

function done(summary, latency)
  local wrong = summary.errors
  io.write(string.format('RESULT {"requests":%d,"seconds":%f,"bytes":%d,"errors":%d,"p50_us":%d,"p99_us":%d}\n',
    summary.requests, summary.duration / 1e6, summary.bytes,
    wrong.connect + wrong.read + wrong.write + wrong.status + wrong.timeout,
    latency:percentile(50), latency:percentile(99)))
end
