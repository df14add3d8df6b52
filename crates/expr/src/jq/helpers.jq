def default($x): if . == null then $x else . end;
def list: if . == null then [] elif isarray then . else [.] end;
def index_by(f):
  reduce .[] as $item ({};
    ($item | f | tostring) as $key
    | if has($key) then error("two entries have the key \($key | tojson)") else .[$key] = $item end);
def join_on(left; right; f; g):
  (reduce right[] as $r ({}; ($r | g | tojson) as $key | .[$key] += [$r])) as $rights
  | [left[] | . as $l | $rights[f | tojson] // [] | .[] | [$l, .]];
def dec_sum: reduce .[] as $x (0; dec_add(.; $x));
def money: dec_round(2);
def money($digits): dec_round($digits);
def time_add($duration): time_add(.; $duration);
def in_zone($zone): in_zone(.; $zone);
def fromcsv: fromcsv(true);
def @base64url: tostring | encode_base64url;
def @base64urld: tostring | decode_base64url;
def @hex: encode_hex;
def @hexd: decode_hex;
def leaf_paths: paths(scalars);
def IN(s): . as $x | any(s; . == $x);
def IN(src; s): any(src; IN(s));
def INDEX(stream; f): reduce stream as $row ({}; .[$row | f | tostring] = $row);
def INDEX(f): INDEX(.[]; f);
def ascii: [.] | implode;
def join($x):
  reduce .[] as $i (null;
    (if . == null then "" else . + $x end)
    + ($i | if . == null then "" elif . < [] then tostring else . end)) // "";
def del(f): delpaths([path(f)]);
def with_entries(f): to_entries | map(f) | from_entries;
def test(re): test(re; null);
def scan_($re; $flags):
  matches($re; $flags)[] | if length > 1 then [.[1:][].string] else .[0].string end;
def scan($re; $flags): scan_($re; "g" + $flags);
def scan($re): scan_($re; "g");
def sub($re; f; $flags):
  . as $whole
  | [split_matches($re; $flags)[] | if isarray then [capture_of_match | f] end]
  | replaced
  | if length == 0 then $whole else .[] end;
def sub($re; f): sub($re; f; "");
def gsub($re; f; $flags): sub($re; f; $flags + "g");
def gsub($re; f): sub($re; f; "g");
def splits($re; $flags): split($re; $flags)[];
def trimstr($x): ltrimstr($x) | rtrimstr($x);
def toarray: if isarray then . else [.] end;
def have_decnum: false;
def have_literal_numbers: true;
def @csv: [.[]
  | if isstring then "\"" + gsub("\""; "\"\"") + "\""
    elif . == null then ""
    elif . >= [] then error("a field of CSV cannot be \(tojson)")
    else tojson end] | join(",");
def @tsv: [.[]
  | if isstring then
      gsub("\\\\"; "\\\\") | gsub("\t"; "\\t") | gsub("\n"; "\\n") | gsub("\r"; "\\r")
    elif . == null then ""
    elif . >= [] then error("a field of TSV cannot be \(tojson)")
    else tojson end] | join("\t");
def tostream:
  path(def r: (.[]?|r), .; r) as $p
  | getpath($p)
  | reduce path(.[]?) as $q ([$p, .]; [$p + $q]);
def fromstream(i):
  {x: null, e: false} as $init
  | foreach i as $i ($init;
      if .e then $init end
      | if $i | length == 2 then .e = ($i[0] | length == 0) | .x |= setpath($i[0]; $i[1])
        else .e = ($i[0] | length == 1) end;
      if .e then .x else empty end);
def truncate_stream(stream):
  . as $n | null | stream | if .[0] | length > $n then .[0] |= .[$n:] else empty end;
def JOIN($index; f): [.[] | [., $index[f]]];
def JOIN($index; stream; f): stream | [., $index[f]];
def JOIN($index; stream; f; join): stream | [., $index[f]] | join;
def dateadd(unit; $n): . + $n;
def datesub(unit; $n): . - $n;
def date: todate;
def @base32: tostring | encode_base32;
def @base32d: tostring | decode_base32;
def pick(f): . as $in | reduce path(f) as $p (null; setpath($p; $in | getpath($p)));
def limit($n; f):
  if $n < 0 then error("limit doesn't support negative count") else limit_($n; f) end;
def skip($n; f):
  if $n < 0 then error("skip doesn't support negative count") else skip_($n; f) end;
def nth($n): .[$n];
def nth($n; f):
  if $n < 0 then error("nth doesn't support negative indices") else first(skip_($n; f)) end;
def flatten_($x):
  reduce .[] as $i ([];
    if $x != 0 and ($i | isarray) then . + ($i | flatten_($x - 1)) else . + [$i] end);
def flatten($x):
  if $x < 0 then error("flatten depth must not be negative") else flatten_($x) end;
def flatten: flatten_(-1);
def toboolean:
  if isboolean then . elif . == "true" then true elif . == "false" then false
  else error("\(type) (\(tojson)) cannot be parsed as a boolean") end;
def isnormal: isnumber and fabs >= 2.2250738585072014e-308 and . != infinite and . != -infinite;
def normals: select(isnormal);
def transpose: [range([.[] | length] | max // 0) as $i | [.[][$i]]];
def format($name):
  if $name == "text" then @text elif $name == "json" then @json elif $name == "csv" then @csv
  elif $name == "tsv" then @tsv elif $name == "html" then @html elif $name == "uri" then @uri
  elif $name == "urid" then @urid elif $name == "sh" then @sh elif $name == "base64" then @base64
  elif $name == "base64d" then @base64d elif $name == "base32" then @base32
  elif $name == "base32d" then @base32d else error("\($name) is not a valid format") end;
