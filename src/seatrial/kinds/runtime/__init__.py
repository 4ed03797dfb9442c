"""The kind `runtime`: does this runtime work on this machine?"""
