"""The kind `scale`: how does this cluster behave under N workloads?"""
