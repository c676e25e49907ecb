package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
)

func TestEachCaseIsMeasured(t *testing.T) {
	binary := os.Getenv("BOLTQ_TESTBED_BIN")
	if binary == "" {
		t.Skip("BOLTQ_TESTBED_BIN is not set; scripts/clients.sh go builds the test bed and runs this test")
	}
	bed := exec.Command(binary, "--storage", "memory")
	input, err := bed.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := bed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bed.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = input.Close()
		_ = bed.Wait()
	}()
	lines := bufio.NewScanner(output)
	lines.Scan()
	var ready struct{ Nodes []struct{ Messaging string } }
	if err := json.Unmarshal(lines.Bytes(), &ready); err != nil {
		t.Fatal(err)
	}
	for name := range cases {
		result, err := measure(ready.Nodes[0].Messaging, name, 500, 10)
		if err != nil || result.Messages != 500 || result.MessagesPerSecond <= 0 || result.Seconds <= 0 {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}
	if result, err := measure(ready.Nodes[0].Messaging, "juggle", 1, 1); err == nil {
		t.Errorf("a case that is not there: %+v", result)
	}
}
