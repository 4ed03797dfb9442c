"""The kind `training`: does this training job finish, and as fast as before?"""
