module lab/benthos

go 1.22

require github.com/benthosdev/benthos/v4 v4.27.0
