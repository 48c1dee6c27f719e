module github.com/spillway-go/spillway/examples/otter

go 1.26.0

replace github.com/spillway-go/spillway => ../..

require (
	github.com/maypok86/otter/v2 v2.4.0
	github.com/spillway-go/spillway v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/felixge/httpsnoop v1.1.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/text v0.44.0 // indirect
)
