// kwok, which plays pods on nodes that do not exist, and the stages of its own that we let it play.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	pods "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "stages" {
		stages := []string{pods.DefaultPodReady, pods.DefaultPodComplete, pods.DefaultPodDelete}
		fmt.Println(strings.Join(stages, "\n---\n"))
		return
	}
	if err := play(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func play() error {
	// kwok reads --config before its own flags are known: this set sees only the flags that say where it is.
	flags := pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	ctx, _ := log.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := config.InitFlags(ctx, flags)
	if err != nil {
		return err
	}
	command := cmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	return command.ExecuteContext(ctx)
}
