module lab/mercure

go 1.26

require github.com/dunglas/mercure v0.24.2
