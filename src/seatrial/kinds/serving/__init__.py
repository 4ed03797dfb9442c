"""The kind `serving`: does a model server answer correctly and fast enough?"""
