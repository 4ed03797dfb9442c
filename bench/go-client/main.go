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
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"seatrial/bench/go-client/measure"
)

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
		measure.Fail(err)
	}
	config.QPS = -1
	config.ContentType = *contentType
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		measure.Fail(err)
	}
	pods := client.CoreV1().Pods(*namespace)
	if _, err := pods.List(context.Background(), metav1.ListOptions{Limit: 1}); err != nil {
		measure.Fail(err)
	}

	var next, failed atomic.Int64
	var workers sync.WaitGroup
	began, before := time.Now(), measure.CPUSeconds()
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
	cost, wall := measure.CPUSeconds()-before, time.Since(began).Seconds()
	answer := map[string]any{"count": *count, "failed": failed.Load(), "cpu_s": cost, "wall_s": wall}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		measure.Fail(err)
	}
}
