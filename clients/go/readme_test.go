package boltq_test

import (
	"os"
	"strings"
	"testing"
)

func TestTheReadmeHasTheProgramThatIsBuilt(t *testing.T) {
	readme := string(must[[]byte](t)(os.ReadFile("README.md")))
	program := string(must[[]byte](t)(os.ReadFile("examples/quickstart/main.go")))
	_, body, _ := strings.Cut(program, "\n")
	if !strings.HasPrefix(body, "package main") || !strings.Contains(readme, body) {
		t.Error("README.md does not show examples/quickstart/main.go; copy one into the other")
	}
}
