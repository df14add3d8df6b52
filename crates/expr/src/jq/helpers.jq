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
