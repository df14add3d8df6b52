module lab/redpanda-connect

go 1.25

require github.com/redpanda-data/benthos/v4 v4.60.0
