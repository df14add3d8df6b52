"""Has PyPI's joserfc judge the tokens of a list, which a test of the crate `access` has made. A line
for each: our judgement, its judgement, the name."""

import json
import sys
import warnings

from joserfc import jwt
from joserfc.jwk import KeySet

warnings.simplefilter("ignore")
with open(sys.argv[1], encoding="utf-8") as file:
    everything = json.load(file)
keys = KeySet.import_key_set(everything["jwks"])
rules = jwt.JWTClaimsRegistry(
    now=everything["now"],
    leeway=30,
    iss={"essential": True, "value": everything["issuer"]},
    aud={"essential": True, "values": everything["audiences"]},
    exp={"essential": True},
)
algorithms = ["RS256", "ES256", "EdDSA", "Ed25519"]

for entry in everything["tokens"]:
    theirs = "taken"
    try:
        rules.validate(jwt.decode(entry["token"], keys, algorithms=algorithms).claims)
    except Exception:  # whatever it finds, it refuses
        theirs = "refused"
    ours = "taken" if entry["refused"] is None else "refused"
    name = "".join(" " if it.isspace() else it for it in entry["name"])
    print(ours, theirs, name)
