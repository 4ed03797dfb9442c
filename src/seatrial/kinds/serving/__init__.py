"""The kind `serving`: does this model server, in this configuration, answer correctly, and fast?"""
