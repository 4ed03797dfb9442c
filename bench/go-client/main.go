// Creates pods with client-go and prints as JSON what that cost this process: the peer of bench/kubernetes_client.py.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// cpuSeconds is user and system time of this process so far.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	seconds := func(value syscall.Timeval) float64 { return float64(value.Sec) + float64(value.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// pod waits behind a scheduling gate, so that nothing but the API server works on it.
func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "bench", "run": "client-go"}},
		Spec: corev1.PodSpec{
			RestartPolicy:   corev1.RestartPolicyNever,
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "seatrial.dev/bench"}},
			Containers:      []corev1.Container{{Name: "main", Image: "none", Command: []string{"true"}}},
		},
	}
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "which cluster")
	namespace := flag.String("namespace", "default", "where the pods go")
	prefix := flag.String("prefix", "go", "how their names begin")
	count := flag.Int("count", 500, "how many pods")
	parallel := flag.Int("parallel", 32, "how many at once")
	contentType := flag.String("content-type", "", "application/json or application/vnd.kubernetes.protobuf; empty: client-go's own choice")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fail(err)
	}
	config.QPS = -1
	config.ContentType = *contentType
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fail(err)
	}
	pods := client.CoreV1().Pods(*namespace)
	if _, err := pods.List(context.Background(), metav1.ListOptions{Limit: 1}); err != nil {
		fail(err)
	}

	var next, failed atomic.Int64
	var workers sync.WaitGroup
	began, before := time.Now(), cpuSeconds()
	for range *parallel {
		workers.Go(func() {
			for {
				number := next.Add(1)
				if number > int64(*count) {
					return
				}
				name := fmt.Sprintf("%s-%d", *prefix, number)
				if _, err := pods.Create(context.Background(), pod(name), metav1.CreateOptions{}); err != nil {
					fmt.Fprintln(os.Stderr, err)
					failed.Add(1)
				}
			}
		})
	}
	workers.Wait()
	cost, wall := cpuSeconds()-before, time.Since(began).Seconds()
	answer := map[string]any{"count": *count, "failed": failed.Load(), "cpu_s": cost, "wall_s": wall}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		fail(err)
	}
}
